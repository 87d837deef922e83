package overlay

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestOverlayFilesAreWritten(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"runtime/proc.go": "edited", "runtime/zheddle.go": "added"}
	description, err := write(dir, "/go/src", files)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(description)
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &overlay); err != nil || len(overlay.Replace) != len(files) {
		t.Fatalf("%v: %s", err, text)
	}
	for name, want := range files {
		if got, _ := os.ReadFile(overlay.Replace["/go/src/"+name]); string(got) != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if info, _ := os.Stat(filepath.Dir(description)); info.Mode().Perm() != 0o755 {
		t.Errorf("%v: others cannot read it", info.Mode())
	}
}

func TestExistingOverlayIsReused(t *testing.T) {
	dir, files := t.TempDir(), map[string]string{"a.go": "text"}
	first, _ := write(dir, "/src", files)
	before, _ := os.Stat(first)
	second, err := write(dir, "/src", files)
	after, _ := os.Stat(second)
	if err != nil || first != second || !os.SameFile(before, after) {
		t.Error(first, second, err)
	}
	for _, other := range []struct{ src, text string }{{"/other", "text"}, {"/src", "other"}} {
		if third, err := write(dir, other.src, map[string]string{"a.go": other.text}); err != nil || third == first {
			t.Error("another overlay has the same name", other, err)
		}
	}
}

// Empty after a power failure, or edited by hand: it is rewritten.
func TestDamagedOverlayIsRewritten(t *testing.T) {
	for _, damage := range []func(folder string){
		func(folder string) { os.WriteFile(filepath.Join(folder, "a.go"), nil, 0o644) },
		func(folder string) { os.Remove(filepath.Join(folder, "a.go")) },
		func(folder string) { os.WriteFile(filepath.Join(folder, "overlay.json"), []byte("{}"), 0o644) },
	} {
		dir, files := t.TempDir(), map[string]string{"a.go": "text", "b/c.go": "more"}
		first, err := write(dir, "/src", files)
		if err != nil {
			t.Fatal(err)
		}
		whole, _ := os.ReadFile(first)
		damage(filepath.Dir(first))
		again, err := write(dir, "/src", files)
		text, _ := os.ReadFile(filepath.Join(filepath.Dir(first), "a.go"))
		now, _ := os.ReadFile(first)
		if err != nil || again != first || string(text) != "text" || string(now) != string(whole) {
			t.Errorf("%v: %q, %s", err, text, now)
		}
	}
}

func TestConcurrentWritersShareOneOverlay(t *testing.T) {
	dir, files := t.TempDir(), map[string]string{"a.go": "text", "b/c.go": strings.Repeat("more", 10_000)}
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			description, err := write(dir, "/src", files)
			if err != nil || !holds(filepath.Dir(description), files) {
				t.Error("not whole when it is returned", err)
			}
		})
	}
	all.Wait()
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestKilledWhileWriting is also the process that is killed: by then it has written one of two
// files, and waits.
func TestKilledWhileWriting(t *testing.T) {
	files := map[string]string{"a.go": "text", "b.go": "more"}
	if dir := os.Getenv("HEDDLE_TEST_KILLED"); dir != "" {
		publish(filepath.Join(dir, digest("/src", files)), exists, func(unfinished string) error {
			fill(unfinished, map[string]string{"a.go": "text"})
			os.Stdout.WriteString("written\n")
			select {}
		})
	}
	dir := t.TempDir()
	killed := exec.Command(os.Args[0], "-test.run=^TestKilledWhileWriting$")
	killed.Env = append(os.Environ(), "HEDDLE_TEST_KILLED="+dir)
	out, err := killed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("written\n"))
	out.Read(line)
	killed.Process.Kill()
	killed.Wait()
	if string(line) != "written\n" {
		t.Fatalf("%q", line)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".unfinished-*", "a.go")); len(left) != 1 {
		t.Errorf("%v: the test kills too early or too late", left)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "[^.]*")); len(left) != 0 {
		t.Errorf("published half-filled: %v", left)
	}
	description, err := write(dir, "/src", files)
	if err != nil || !holds(filepath.Dir(description), files) {
		t.Error("the second attempt fails:", err)
	}
}

func TestCacheFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	here, _ := os.Getwd()
	for _, test := range []struct{ own, xdg, home, gos, want string }{
		{"", "/cache", "/home", "/gos", "/cache/heddle/go"},
		{"/elsewhere", "/cache", "/home", "/gos", "/elsewhere"},
		{"below", "/cache", "/home", "/gos", filepath.Join(here, "below")},
		{"", "", "/home", "/gos", "/home/.cache/heddle/go"},
		{"", "", "", "/gos", "/gos/heddle/go"},
		{"", "relative", "", "/gos", "/gos/heddle/go"},
		{"", "", "", "off", ""}, // as `go env` says where there is none
	} {
		t.Setenv("HEDDLE_GO_CACHE", test.own)
		t.Setenv("XDG_CACHE_HOME", test.xdg)
		t.Setenv("HOME", test.home)
		folder, err := Toolchain{Cache: test.gos}.folder()
		if folder != test.want || (err == nil) == (test.want == "") {
			t.Errorf("%v: %s, %v", test, folder, err)
		}
		if err != nil && !strings.Contains(err.Error(), "set HOME, or GOCACHE") {
			t.Error(err)
		}
	}
}
