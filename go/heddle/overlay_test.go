//go:build !heddle

package heddle_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// This package's tests again, and those of the scheduling with them, under the
// overlay. The first time the standard library is compiled for it.
func TestUnderTheOverlay(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the tests of the scheduling, which need a build with heddle-go, are left out")
	}
	tool := filepath.Join(t.TempDir(), "heddle-go")
	for _, command := range []*exec.Cmd{
		exec.Command("go", "build", "-o", tool, "../heddle-go"),
		exec.Command(tool, "vet", "."),
		exec.Command(tool, "test", "-count=1", "-timeout=9m", "."),
	} {
		command.Env = append(os.Environ(), "HEDDLE_GO=")
		if said, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command.Args, err, said)
		}
	}
}
