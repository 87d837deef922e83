package overlay

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// valued are the flags of go build, run, test, install, vet and list that take a value, which may
// be the next word. All others are switches, or belong to the program that is run.
var valued = strings.Fields(`C asmflags buildmode compiler covermode coverpkg exec f gccgoflags gcflags installsuffix
	ldflags mod modfile o overlay p pgo pkgdir reuse tags toolexec vettool
	bench benchtime blockprofile blockprofilerate count coverprofile cpu cpuprofile fuzz fuzzminimizetime fuzztime list
	memprofile memprofilerate mutexprofile mutexprofilefraction outputdir parallel run shuffle skip timeout trace vet`)

// A flag is one word of a command line, parsed.
type flag struct {
	name, value string
	isFlag      bool // the word is a flag, not a package or the end of the flags
	takesNext   bool // its value is the next word
}

func parse(command, word string) flag {
	name, isFlag := strings.CutPrefix(word, "-")
	name = strings.TrimPrefix(name, "-")
	name, value, hasValue := strings.Cut(name, "=")
	if !isFlag || name == "" || name == "args" && command == "test" {
		return flag{}
	}
	isValued := slices.Contains(valued, strings.TrimPrefix(name, "test.")) || name == "c" && command == "vet"
	return flag{name, value, true, isValued && !hasValue}
}

// takeTags removes all -tags from args, the words after a go command, and returns the last one,
// nil if there is none. It looks as far as cmd/go does: up to the first package, after which
// everything belongs to the program or is a package; for test also past packages, up to a word
// that is neither a package nor a possible value of a flag.
func takeTags(command string, args []string) (tags *string, rest []string, err error) {
	seen, inPackages, mayBeValue := false, false, false
	for len(args) > 0 {
		f := parse(command, args[0])
		if !f.isFlag {
			isEnd := strings.HasPrefix(args[0], "-") && args[0] != "-"
			if command != "test" || isEnd || seen && !inPackages && !mayBeValue {
				break
			}
			seen, inPackages = true, true
			rest, args = append(rest, args[0]), args[1:]
			continue
		}
		inPackages, mayBeValue = false, !f.takesNext && !strings.Contains(args[0], "=")
		words := 1
		if f.takesNext && len(args) > 1 {
			f.value, words = args[1], 2
		}
		switch f.name {
		case "overlay":
			return nil, nil, errOverlay
		case "tags":
			tags = &f.value
		default:
			rest = append(rest, args[:words]...)
		}
		args = args[words:]
	}
	return tags, append(rest, args...), nil
}

var errOverlay = errors.New("-overlay: cmd/go takes one overlay, and Heddle uses it")

// field is one flag of GOFLAGS, which may be quoted as a whole.
var field = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)

func split(goflags string) []string {
	fields := field.FindAllString(goflags, -1)
	for i := range fields {
		fields[i] = strings.Trim(fields[i], `'"`)
	}
	return fields
}

// withOverlay returns args, the words after a go command, with the flags that make cmd/go build
// with the overlay. goflags is the user's GOFLAGS, whose -tags count unless the command line has
// some.
func withOverlay(command string, args []string, json, goflags string) ([]string, error) {
	tags, _, err := takeTags("build", split(goflags))
	if err != nil {
		return nil, errors.New("GOFLAGS: " + err.Error())
	}
	given, rest, err := takeTags(command, args)
	if err != nil {
		return nil, err
	}
	if given != nil {
		tags = given
	}
	list := []string{}
	if tags != nil {
		list = strings.FieldsFunc(*tags, func(r rune) bool { return r == ',' || r == ' ' })
	}
	if !slices.Contains(list, Tag) {
		list = append(list, Tag)
	}
	return append([]string{"-overlay=" + json, "-tags=" + strings.Join(list, ",")}, rest...), nil
}

// Command returns a go command such as build, with its arguments, to be run with the overlay.
// Handle a -C beforehand, because the toolchain depends on the folder.
func (o Overlay) Command(name string, args ...string) (*exec.Cmd, error) {
	flags, err := withOverlay(name, args, o.JSON, o.Toolchain.Flags)
	if err != nil {
		return nil, err
	}
	command := exec.Command(filepath.Join(o.Root, "bin", "go"), append([]string{name}, flags...)...)
	command.Env = os.Environ()
	if o.Root != o.Toolchain.Root {
		command.Env = append(command.Env, "GOROOT="+o.Root, "GOTOOLCHAIN=local")
	}
	if o.Toolchain.ModCache == "" {
		command.Env = append(command.Env, "GOMODCACHE="+o.Modules)
	}
	return command, nil
}

// Flags returns the flags with which the toolchain's own go builds the same.
func (o Overlay) Flags() ([]string, error) {
	if o.Root != o.Toolchain.Root {
		return nil, errors.New(o.Toolchain.Version +
			" is in the module cache, where go itself takes no overlay: use the command build instead of flags")
	}
	if o.Toolchain.ModCache == "" {
		return nil, errors.New("go takes no overlay without a module cache: set HOME, GOPATH or GOMODCACHE")
	}
	flags, err := withOverlay("build", nil, o.JSON, o.Toolchain.Flags)
	for _, f := range flags {
		if strings.ContainsAny(f, " \t\n") {
			return nil, errors.New("a shell would split " + f +
				": set HEDDLE_GO_CACHE to a folder without spaces in its name")
		}
	}
	return flags, err
}

// TakeFolder removes a leading -C from the words after a go command, the only place where go
// accepts it; "" if there is none.
func TakeFolder(args []string) (folder string, rest []string) {
	if len(args) == 0 {
		return "", args
	}
	switch f := parse("", args[0]); {
	case f.name != "C":
		return "", args
	case !f.takesNext:
		return f.value, args[1:]
	case len(args) > 1:
		return args[1], args[2:]
	}
	return "", args
}
