package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// others returns the toolchains in the module cache that scripts/test-go has fetched.
func others(t *testing.T) []string {
	versions := strings.Fields(os.Getenv("HEDDLE_TEST_TOOLCHAINS"))
	if len(versions) == 0 {
		t.Skip("HEDDLE_TEST_TOOLCHAINS names no toolchains to download: scripts/test-go does")
	}
	return versions
}

func TestToolchainsOfTheModuleCache(t *testing.T) {
	for _, version := range others(t) {
		t.Run(version, func(t *testing.T) {
			cache, program := t.TempDir(), filepath.Join(t.TempDir(), "program")
			variables := []string{"GOTOOLCHAIN=" + version, "HEDDLE_GO_CACHE=" + cache}
			succeeds(t, variables, tool, "build", "-o", program, "./testdata/plain")
			works(t, program)
			if r := succeeds(t, nil, program); r.out != "ok "+version+" with tag heddle\n" {
				t.Error(r)
			}
			before := trees(t, cache)
			succeeds(t, variables, tool, "test", "./testdata/tested")
			if after := trees(t, cache); len(after) != 1 || !os.SameFile(before[0], after[0]) {
				t.Error("the second use did not find the links of the first:", before, after)
			}
			r := runWith(t, variables, tool, "flags")
			says := version + " is in the module cache, where go itself takes no overlay"
			if r.status != 2 || !strings.Contains(r.errors, says) {
				t.Error(r)
			}
		})
	}
}

func trees(t *testing.T, cache string) (found []os.FileInfo) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(cache, "goroot"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, info)
	}
	return found
}

// A go.mod that requires a Go newer than the installed one selects it, as for go itself; the
// go.mod is that of the folder of -C.
func TestGoModChooses(t *testing.T) {
	all := others(t)
	version := all[len(all)-1]
	project := t.TempDir()
	text := "package main\n\nimport \"runtime\"\n\nfunc main() { println(runtime.Version()) }\n"
	os.WriteFile(filepath.Join(project, "main.go"), []byte(text), 0o644)
	module := "module example\n\ngo " + strings.TrimPrefix(version, "go") + "\n"
	os.WriteFile(filepath.Join(project, "go.mod"), []byte(module), 0o644)
	r := succeeds(t, []string{"GOTOOLCHAIN=auto"}, tool, "run", "-C", project, ".")
	if r.errors != version+"\n" {
		t.Error(r)
	}
}

// The links lead from one file system to another.
func TestLinksAcrossFileSystems(t *testing.T) {
	version := others(t)[0]
	folder, err := os.MkdirTemp("/dev/shm", "heddle-go-")
	if err != nil {
		t.Skip("no other file system: ", err)
	}
	defer os.RemoveAll(folder)
	if device(t, folder) == device(t, os.TempDir()) {
		t.Skip("/dev/shm is on the same file system")
	}
	program := filepath.Join(folder, "program")
	variables := []string{"GOTOOLCHAIN=" + version, "HEDDLE_GO_CACHE=" + folder}
	succeeds(t, variables, tool, "build", "-o", program, "./testdata/knobs")
	hasScheduler(t, program)
}

func device(t *testing.T, path string) uint64 {
	t.Helper()
	var stat syscall.Stat_t
	if err := syscall.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return uint64(stat.Dev)
}

// go's own message if a toolchain is not available.
func TestUnavailableToolchainIsReported(t *testing.T) {
	variables := []string{"GOTOOLCHAIN=go1.26.0", "GOPROXY=off", "GOMODCACHE=" + t.TempDir(), "GOFLAGS="}
	for _, args := range [][]string{{"build", "./testdata/plain"}, {"check"}} {
		r := runWith(t, variables, tool, args...)
		says := "go: download go1.26.0 for linux/" + runtime.GOARCH + ": toolchain not available\n"
		if r.status != 2 || !strings.Contains(r.errors, says) ||
			!strings.HasSuffix(r.errors, "heddle-go: go env: exit status 1\n") {
			t.Error(r)
		}
	}
}
