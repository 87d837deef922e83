package overlay

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The queue of two sections (_runtime/zheddle_queue.go) against a model of two slices
// (testdata/queue), in a module of its own, with the toolchain's gQueue.
func TestQueueOfTwoSectionsAgainstItsModel(t *testing.T) {
	folder := t.TempDir()
	files := map[string]string{
		"go.mod":           "module queue\n\ngo 1.25\n",
		"atomic/atomic.go": data(t, "testdata/queue/atomic/atomic.go.txt"),
		"stubs.go":         data(t, "testdata/queue/stubs.go.txt"),
		"model_test.go":    data(t, "testdata/queue/model_test.go.txt"),
		"zheddle.go":       withStubs(data(t, "_runtime/zheddle.go")),
		"zheddle_queue.go": withStubs(data(t, "_runtime/zheddle_queue.go")),
		"gqueue.go":        gQueue(t),
	}
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("go", "test", "-vet=off", "-count=1", "-timeout=5m", ".")
	command.Dir = folder
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output[:min(len(output), 8000)])
	}
}

// withStubs imports the module's package atomic.
func withStubs(text string) string {
	return strings.Replace(text, `"internal/runtime/atomic"`, `"queue/atomic"`, 1)
}

func data(t *testing.T, name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// gQueue returns the source of the toolchain's gQueue and the methods that are used.
func gQueue(t *testing.T) string {
	toolchain, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(toolchain.Root, "src/runtime/proc.go")
	source, text := data(t, file), "package runtime\n"
	for _, decl := range []string{
		"type gQueue", "gQueue.empty", "gQueue.push", "gQueue.pushBack", "gQueue.pushBackAll", "gQueue.pop",
	} {
		from, to, err := extent(file, source, decl)
		if err != nil || to == 0 {
			t.Fatalf("%s: %v", decl, err)
		}
		text += "\n" + source[from:to] + "\n"
	}
	return text
}
