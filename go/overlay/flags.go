package overlay

import (
	"errors"
	"slices"
	"strings"
)

// switches are the flags of go build, test, run and install that take no
// value, so that the ones that do can be told from packages.
var switches = strings.Fields(`a n v x i c race msan asan cover work json trimpath modcacherw linkshared
	buildvcs benchmem failfast short artifacts fullpath h help
	test.v test.short test.failfast test.benchmem`)

// withOverlay is args, of a command of go and without its name, with what
// makes cmd/go build with the overlay; goflags is the user's GOFLAGS.
func withOverlay(args []string, json, goflags string) ([]string, error) {
	tags, args, err := takeTags(args)
	if err != nil {
		return nil, err
	}
	if tags == "" {
		tags = fromGoflags(goflags)
	}
	list := strings.FieldsFunc(tags, func(r rune) bool { return r == ',' || r == ' ' })
	if !slices.Contains(list, Tag) {
		list = append(list, Tag)
	}
	return append([]string{"-overlay=" + json, "-tags=" + strings.Join(list, ",")}, args...), nil
}

// takeTags takes the user's -tags out of args.
func takeTags(args []string) (tags string, rest []string, err error) {
	for i := 0; i < len(args); i++ {
		flag, value, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(args[i], "-"), "-"), "=")
		if !strings.HasPrefix(args[i], "-") || args[i] == "-" || args[i] == "--" || flag == "args" {
			return tags, append(rest, args[i:]...), nil
		}
		takesNext := !hasValue && !slices.Contains(switches, flag)
		if takesNext && i+1 < len(args) {
			value = args[i+1]
		}
		switch flag {
		case "overlay":
			return "", nil, errors.New("-overlay: cmd/go takes one overlay, and this is Heddle's; build with `go build -overlay` what needs yours, or lay its replacements over Heddle's (heddle-go flags)")
		case "tags":
			tags = value
		default:
			rest = append(rest, args[i])
			if takesNext && i+1 < len(args) {
				rest = append(rest, args[i+1])
			}
		}
		if takesNext {
			i++
		}
	}
	return tags, rest, nil
}

// fromGoflags is the value of -tags in GOFLAGS, which the command line's
// replaces.
func fromGoflags(goflags string) (tags string) {
	for _, flag := range strings.Fields(goflags) {
		flag = strings.Trim(flag, `'"`)
		if value, isTags := strings.CutPrefix(strings.TrimPrefix(flag, "-"), "-tags="); isTags {
			tags = value
		}
	}
	return tags
}

// Command is the arguments of go, its name left out, that run a command such
// as build with the overlay, and what must be set in its environment.
func (o Overlay) Command(args []string) (command, env []string, err error) {
	rest, err := withOverlay(args[1:], o.JSON, o.Toolchain.Flags)
	if err != nil {
		return nil, nil, err
	}
	if o.Root != o.Toolchain.Root {
		env = []string{"GOROOT=" + o.Root, "GOTOOLCHAIN=local"}
	}
	return append(args[:1:1], rest...), env, nil
}

// Go is the command of the toolchain.
func (o Overlay) Go() string {
	return o.Root + "/bin/go"
}
