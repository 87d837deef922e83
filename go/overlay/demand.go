package overlay

import (
	"encoding/json"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"strings"
)

// A demand is the oldest release of Go that a go.mod or go.work allows; the zero value if neither
// exists or has a line `go`.
type demand struct{ file, version string }

// demand returns the demand of the folder in which the toolchain was found.
func (t Toolchain) demand() (demand, error) {
	kind, file := "work", t.Work
	if file == "" || file == "off" {
		kind, file = "mod", t.Mod
	}
	if file == "" || file == os.DevNull {
		return demand{}, nil
	}
	command := exec.Command("go", kind, "edit", "-json", file)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return demand{}, fmt.Errorf("go %s edit -json %s: %w", kind, file, err)
	}
	var parsed struct{ Go string }
	if err := json.Unmarshal(out, &parsed); err != nil || parsed.Go == "" {
		return demand{}, err
	}
	return demand{file, "go" + parsed.Go}, nil
}

// allows reports whether a toolchain of the version may build. Versions that are not releases,
// such as development versions, are left to cmd/go.
func (d demand) allows(toolchain string) bool {
	toolchain, _, _ = strings.Cut(toolchain, " ")
	return !version.IsValid(toolchain) || !version.IsValid(d.version) || version.Compare(toolchain, d.version) >= 0
}

// unmet returns why the toolchain that go has chosen does not satisfy d: cmd/go would have chosen
// a newer one if GOTOOLCHAIN let it.
func (d demand) unmet(t Toolchain) string {
	why := fmt.Sprintf("%s selects %s, and GOTOOLCHAIN=%s keeps go at %s", d.file, d.version, t.Choice, t.Version)
	selected := t
	selected.Version = d.version
	if _, err := selected.release(); err != nil {
		return why + "; " + err.Error()
	}
	return why + "; GOTOOLCHAIN=auto fetches a newer one, which is supported"
}
