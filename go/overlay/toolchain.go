package overlay

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// A Toolchain is an installed Go, as `go env` reports it in a folder: GOTOOLCHAIN and go.mod may
// have selected a toolchain other than the one in PATH.
type Toolchain struct {
	Version  string `json:"GOVERSION"`
	Root     string `json:"GOROOT"`
	OS       string `json:"GOOS"`
	Arch     string `json:"GOARCH"`
	Flags    string `json:"GOFLAGS"`
	ModCache string `json:"GOMODCACHE"`
	Cache    string `json:"GOCACHE"`
	Mod      string `json:"GOMOD"`
	Work     string `json:"GOWORK"`
	Choice   string `json:"GOTOOLCHAIN"`
}

// Find asks the command go, which may first download a toolchain and reports that on standard
// error.
func Find() (Toolchain, error) {
	var t Toolchain
	command := exec.Command("go", "env", "-json", "GOVERSION", "GOROOT", "GOOS", "GOARCH", "GOFLAGS", "GOMODCACHE",
		"GOCACHE", "GOMOD", "GOWORK", "GOTOOLCHAIN")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return t, errors.New("there is no command go in PATH; install Go 1.25 or newer (https://go.dev/dl)")
	}
	if err != nil {
		return t, fmt.Errorf("go env: %w", err)
	}
	if err := json.Unmarshal(out, &t); err != nil {
		return t, fmt.Errorf("go env: %w", err)
	}
	return t, nil
}

// release returns the entry for the toolchain's release of Go, or an error that says why Heddle
// cannot build with it and what to do.
func (t Toolchain) release() (release, error) {
	minor := 0
	if rest, isGo1 := strings.CutPrefix(t.Version, "go1."); isGo1 {
		end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(rest)
		}
		minor, _ = strconv.Atoi(rest[:end])
	}
	if t.OS != "linux" || t.Arch != "amd64" && t.Arch != "arm64" {
		return release{}, fmt.Errorf("%s/%s is not supported: the overlay is for linux/amd64 and linux/arm64",
			t.OS, t.Arch)
	}
	for _, r := range releases {
		if r.minor == minor {
			return r, nil
		}
	}
	var known []string
	for _, r := range releases {
		known = append(known, fmt.Sprintf("1.%d", r.minor))
	}
	return release{}, fmt.Errorf("%s is not supported (supported: Go %s); %s",
		t.Version, strings.Join(known, ", "), t.advice())
}

// advice says how to get a supported release.
func (t Toolchain) advice() string {
	newest := releases[len(releases)-1].minor
	if d, err := t.demand(); err == nil && !d.allows(fmt.Sprintf("go1.%d.999", newest)) {
		const format = "%s allows none of these (its line `go %s`); " +
			"a newer version of Heddle may support what it requires"
		return fmt.Sprintf(format,
			d.file, strings.TrimPrefix(d.version, "go"))
	}
	return fmt.Sprintf("a go.mod with a line `toolchain go1.%d.0`, or GOTOOLCHAIN, selects another one", newest)
}

// usable returns a GOROOT that cmd/go accepts an overlay for: the toolchain's own, or, for one in
// the module cache, where cmd/go forbids it, a tree of links to it below cache.
func (t Toolchain) usable(cache string) (string, error) {
	if t.ModCache == "" || !strings.HasPrefix(t.Root, t.ModCache+string(filepath.Separator)) {
		return t.Root, nil
	}
	// Named by its target: another module cache may be gone tomorrow.
	target := fmt.Sprintf("%x", sha256.Sum256([]byte(t.Root)))[:8]
	tree := filepath.Join(cache, "goroot", t.Version+"-"+target)
	return tree, publish(tree, exists, func(unfinished string) error { return link(t.Root, unfinished) })
}

// link makes a tree of folders at to with links to the files below from.
func link(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		return os.Symlink(path, filepath.Join(to, rel))
	})
}
