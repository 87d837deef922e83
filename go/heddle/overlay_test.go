//go:build !heddle

package heddle_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// This package's tests again, together with those of the scheduling, under the overlay. The first
// run compiles the standard library for it.
func TestUnderTheOverlay(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: skipping the tests of the scheduling, which need a build with heddle-go")
	}
	tool := filepath.Join(t.TempDir(), "heddle-go")
	for _, command := range []*exec.Cmd{
		exec.Command("go", "build", "-o", tool, "../heddle-go"),
		exec.Command(tool, "vet", "."),
		exec.Command(tool, "test", "-count=1", "-timeout=9m", "."),
	} {
		command.Env = append(os.Environ(), "HEDDLE_GO=")
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command.Args, err, output)
		}
	}
}
