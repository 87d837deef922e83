package overlay

import (
	"fmt"
	"path/filepath"
)

// A Finding says whether a toolchain is supported, and where it is.
type Finding struct {
	Version string `json:"version"`
	Goroot  string `json:"goroot"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	// Support is "full" or "none".
	Support string `json:"support"`
	// Why is the reason if it is not supported, otherwise empty.
	Why string `json:"why,omitempty"`
	// Edits is how many edits matched.
	Edits int `json:"edits"`
	// Files is how many files the overlay replaces or adds.
	Files int `json:"files"`
	// Overlay is the description for go build -overlay.
	Overlay string `json:"overlay,omitempty"`
}

// Check reports whether the toolchain is supported: it tries every edit and compiles the packages
// that they change.
func Check() (Finding, error) {
	toolchain, err := Find()
	if err != nil {
		return Finding{}, err
	}
	f := Finding{
		Version: toolchain.Version, Goroot: toolchain.Root, OS: toolchain.OS, Arch: toolchain.Arch, Support: "none",
	}
	files, err := toolchain.files()
	if err != nil {
		f.Why = err.Error()
		return f, nil
	}
	f.Edits, f.Files = len(edits), len(files)
	switch d, err := toolchain.demand(); {
	case err != nil:
		return f, err
	case !d.allows(toolchain.Version):
		f.Why = d.unmet(toolchain)
		return f, nil
	}
	made, err := toolchain.Overlay()
	if err != nil {
		return f, err
	}
	if err := made.compile(); err != nil {
		f.Why = err.Error()
		return f, nil
	}
	f.Support, f.Overlay = "full", made.JSON
	return f, nil
}

// compile builds the packages that the edits change, in a folder whose go.mod is the toolchain's.
func (o Overlay) compile() error {
	command, err := o.Command("build", "runtime", "internal/sync", "sync")
	if err != nil {
		return err
	}
	command.Dir = filepath.Join(o.Root, "src")
	command.Env = append(command.Env, "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: the edited packages do not compile (%w):\n%s", o.Toolchain.Version, err, output)
	}
	return nil
}
