package overlay

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const source = `package p

import (
	"fmt"
)

type g struct {
	x int
}

type (
	a int
	b int
)

func (x *g) Lock()   { once(); twice(); twice() }
func (x g) Unlock()  { once() }
func (*list[T]) Pop() { once() }
func plain()         { once() }
`

func TestEditChangesOnlyItsDeclaration(t *testing.T) {
	for _, decl := range []string{"g.Lock", "g.Unlock", "plain"} {
		text, err := apply(source, "go1.99", edit{"f.go", decl, "once()", "edited()"})
		if err != nil {
			t.Fatal(err)
		}
		name := decl[strings.Index(decl, ".")+1:]
		for _, line := range strings.Split(text, "\n") {
			isDecl := strings.HasPrefix(line, "func") && strings.Contains(line, name+"()")
			if strings.Contains(line, "edited()") != isDecl {
				t.Errorf("%s: %s", decl, line)
			}
		}
	}
}

func TestTypesAndImportsAreEdited(t *testing.T) {
	for _, e := range []edit{{"f.go", "type g", "x int", "y int"}, {"f.go", "import", `"fmt"`, `"os"`}} {
		if text, err := apply(source, "go1.99", e); err != nil || !strings.Contains(text, e.with) {
			t.Errorf("%s: %v\n%s", e.decl, err, text)
		}
	}
}

func TestUnmatchedEditIsRefused(t *testing.T) {
	for _, test := range []struct {
		decl, anchor string
		found        int
		says         string
	}{
		{"g.Lock", "thrice()", 0, `anchor "thrice()": found 0 times, want 1`},
		{"g.Lock", "twice()", 2, `anchor "twice()": found 2 times, want 1`},
		{"g.Unlock", "twice()", 0, `anchor "twice()": found 0 times`},
		{"g.Gone", "once()", -1, `anchor "once()": there is no such declaration`},
		{"list.Pop", "once()", -1, "there is no such declaration"},
		{"type a", "int", -1, "there is no such declaration"},
	} {
		_, err := apply(source, "go1.99.3", edit{"pkg/f.go", test.decl, test.anchor, "x"})
		var mismatch *Mismatch
		if !errors.As(err, &mismatch) || mismatch.Found != test.found {
			t.Fatalf("%s, %s: %v", test.decl, test.anchor, err)
		}
		for _, part := range []string{"go1.99.3 is not supported", "pkg/f.go", test.decl, test.says} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
}

func TestInvalidGoSourcesAreRefused(t *testing.T) {
	_, err := apply("package p\nfunc {", "go1.99.3", edit{"pkg/f.go", "f", "x", "y"})
	if err == nil || !strings.Contains(err.Error(), "go1.99.3: pkg/f.go:2") {
		t.Errorf("%v", err)
	}
}

// A toolchain that differs from its release: nothing is written.
func TestNothingIsWrittenUnlessAllEditsMatch(t *testing.T) {
	for _, test := range []struct {
		what, file string
		change     func(string) string
		says       []string
	}{
		{"missing anchor", "runtime/proc.go",
			func(s string) string { return strings.Replace(s, "usleep(delay)", "usleep(delay+0)", 1) },
			[]string{"runtime/proc.go, sysmon", `anchor "usleep(delay)": found 0 times, want 1`}},
		{"anchor twice", "runtime/proc.go",
			func(s string) string { return strings.Replace(s, "usleep(delay)", "usleep(delay);usleep(delay)", 1) },
			[]string{"runtime/proc.go, sysmon", `anchor "usleep(delay)": found 2 times, want 1`}},
		{"missing declaration", "runtime/proc.go",
			func(s string) string { return strings.Replace(s, "func gopreempt_m(", "func gopreempt_n(", 1) },
			[]string{"runtime/proc.go, gopreempt_m", "there is no such declaration"}},
		{"missing method", "sync/rwmutex.go",
			func(s string) string { return strings.Replace(s, ") TryRLock(", ") TestRLock(", 1) },
			[]string{"sync/rwmutex.go, RWMutex.TryRLock", "there is no such declaration"}},
		{"missing sources", "sync/rwmutex.go", nil,
			[]string{"the sources of the standard library are needed", "sync/rwmutex.go"}},
	} {
		t.Run(test.what, func(t *testing.T) {
			toolchain := copied(t)
			path := filepath.Join(toolchain.Root, "src", test.file)
			if test.change == nil {
				os.Remove(path)
			} else {
				text, _ := os.ReadFile(path)
				changed := test.change(string(text))
				if changed == string(text) {
					t.Fatal("the test changes nothing: the sources of the standard library have changed")
				}
				os.WriteFile(path, []byte(changed), 0o644)
			}
			cache := t.TempDir()
			t.Setenv("HEDDLE_GO_CACHE", cache)
			_, err := toolchain.Overlay()
			if err == nil {
				t.Fatal("the toolchain was accepted")
			}
			for _, part := range append(test.says, toolchain.Version) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if left, _ := os.ReadDir(cache); len(left) != 0 {
				t.Errorf("written: %v", left)
			}
		})
	}
}

// copied returns the installed toolchain with a copy of the sources that are edited.
func copied(t *testing.T) Toolchain {
	t.Helper()
	toolchain := installed(t)[0]
	root := t.TempDir()
	for _, e := range edits {
		text, err := os.ReadFile(filepath.Join(toolchain.Root, "src", e.file))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, "src", e.file)
		os.MkdirAll(filepath.Dir(to), 0o755)
		if err := os.WriteFile(to, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	toolchain.Root = root
	return toolchain
}
