package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// policies under which each built program runs; check walks the global run queue at each change.
var policies = []string{
	"quantum=100us,check=on",
	"quantum=50us,check=on,sysmon=event",
	"aspen,quantum=100us,check=on",
	"off",
}

// works runs a built program under each policy, and with an invalid one.
func works(t *testing.T, program string, variables ...string) {
	t.Helper()
	for _, policy := range policies {
		r := succeeds(t, append(variables, "HEDDLE_GO="+policy), program)
		if !strings.HasPrefix(r.out, "ok") {
			t.Errorf("HEDDLE_GO=%s: %v", policy, r)
		}
	}
	hasScheduler(t, program, variables...)
}

func hasScheduler(t *testing.T, program string, variables ...string) {
	t.Helper()
	r := runWith(t, append(variables, "HEDDLE_GO=nonsense"), program)
	if !strings.Contains(r.errors, "heddle: HEDDLE_GO: nonsense") {
		t.Errorf("the program was built without the scheduler: %v", r)
	}
}

func TestPlain(t *testing.T) { works(t, built(t, "./testdata/plain")) }
func TestRace(t *testing.T)  { works(t, built(t, "./testdata/plain", "-race")) }
func TestPie(t *testing.T)   { works(t, built(t, "./testdata/plain", "-buildmode=pie")) }
func TestExternal(t *testing.T) {
	works(t, built(t, "./testdata/plain", "-ldflags=-linkmode=external"))
}
func TestCgo(t *testing.T)     { works(t, built(t, "./testdata/callback")) }
func TestCgoRace(t *testing.T) { works(t, built(t, "./testdata/callback", "-race")) }

// A library in Go that threads of C call. An invalid HEDDLE_GO, which may be meant for another
// program, does not end the process.
func TestLibraries(t *testing.T) {
	for mode, library := range map[string]string{"c-shared": "libshared.so", "c-archive": "libshared.a"} {
		t.Run(mode, func(t *testing.T) {
			program, variable := callerOf(t, mode, library)
			works(t, program, variable)
			for _, value := range []string{"nonsense", "off,quantum=1h", "aspen,check=on,quantum=50us,"} {
				r := succeeds(t, []string{variable, "HEDDLE_GO=" + value}, program)
				const notice = "; the library ignores HEDDLE_GO and takes the defaults\n"
				isRefused := strings.HasSuffix(r.errors, notice) && strings.Count(r.errors, "\n") == 1
				if r.out != "ok\n" || isRefused == strings.HasPrefix(value, "aspen") {
					t.Errorf("HEDDLE_GO=%s: %v", value, r)
				}
			}
		})
	}
}

// callerOf builds a library and a program in C that calls it, and returns the
// program and the variable with which it finds the library.
func callerOf(t *testing.T, mode, library string) (program, variable string) {
	t.Helper()
	folder := t.TempDir()
	library, program = filepath.Join(folder, library), filepath.Join(folder, "caller")
	caller := filepath.Join(folder, "caller.c")
	succeeds(t, nil, tool, "build", "-buildmode="+mode, "-o", library, "./testdata/shared")
	text, err := os.ReadFile("testdata/shared/caller.c.txt")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(caller, text, 0o644); err != nil {
		t.Fatal(err)
	}
	succeeds(t, nil, "gcc", "-o", program, caller, library, "-lpthread")
	return program, "LD_LIBRARY_PATH=" + folder
}

func TestTimersDoNotInterruptC(t *testing.T) {
	program := built(t, "./testdata/timers")
	for _, policy := range []string{"", "quantum=20us", "skip=off"} {
		succeeds(t, []string{"HEDDLE_GO=" + policy}, program)
	}
}

func TestTagIsSet(t *testing.T) {
	if r := succeeds(t, nil, built(t, "./testdata/plain")); !strings.HasSuffix(r.out, " with tag heddle\n") {
		t.Error(r)
	}
	if r := succeeds(t, nil, tool, "run", "./testdata/plain"); !strings.HasSuffix(r.out, " with tag heddle\n") {
		t.Error(r)
	}
	succeeds(t, nil, tool, "test", "./testdata/tested")
	succeeds(t, nil, tool, "vet", "./testdata/tested")
	r := runWith(t, nil, "go", "test", "./testdata/tested")
	if r.status != 1 || !strings.Contains(r.out, "built without tag heddle") {
		t.Error(r)
	}
}

func TestFlagsWorkWithGoItself(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	succeeds(t, nil, "sh", "-c", "go build -o "+program+" $("+tool+" flags) ./testdata/plain")
	hasScheduler(t, program)
}

// Package heddle checks the runtime in the program, not the build tags. cmd/go takes only the last
// -tags, so here the tag from the flags is lost.
func TestPackageHeddleDetectsTheRuntime(t *testing.T) {
	const active, stock = "true 50\u00b5s <nil>\n", "false 0s heddle: the scheduler is not active"
	for _, test := range []struct{ command, says string }{
		{tool + " run ./testdata/active", active},
		{tool + " run -race ./testdata/active", active},
		{tool + " run -buildmode=pie -ldflags=-linkmode=external ./testdata/active", active},
		{"go run $(" + tool + " flags) ./testdata/active", active},
		{"go run $(" + tool + " flags) -tags foo ./testdata/active", active},
		{"HEDDLE_GO=off " + tool + " run ./testdata/active", stock},
		{"go run ./testdata/active", stock},
		{"go run -tags heddle ./testdata/active", stock},
	} {
		if r := succeeds(t, nil, "sh", "-c", test.command); !strings.HasPrefix(r.out, test.says) {
			t.Errorf("%s: %v", test.command, r)
		}
	}
}

func TestFolderOfDashC(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	succeeds(t, nil, tool, "build", "-C", "testdata/plain", "-o", program, ".")
	hasScheduler(t, program)
}

func TestGoflagsAreKept(t *testing.T) {
	r := succeeds(t, []string{"GOFLAGS=-tags=theirs"}, tool, "list", "-f", "{{context.BuildTags}}", "./testdata/plain")
	if r.out != "[theirs heddle]\n" {
		t.Error(r)
	}
}

// Programs that stock go builds before and after are unaffected by Heddle.
func TestStockBuildsStayStock(t *testing.T) {
	built(t, "./testdata/knobs")
	program := filepath.Join(t.TempDir(), "program")
	succeeds(t, nil, "go", "build", "-o", program, "./testdata/knobs")
	succeeds(t, []string{"HEDDLE_GO=nonsense"}, program)
}

// Debian's Go has its sources behind a link.
func TestSourcesBehindALink(t *testing.T) {
	root := t.TempDir()
	for _, part := range []string{"src", "pkg", "lib", "go.env", "VERSION"} {
		if err := os.Symlink(filepath.Join(goroot(), part), filepath.Join(root, part)); err != nil {
			t.Fatal(err)
		}
	}
	succeeds(t, nil, "cp", "-r", filepath.Join(goroot(), "bin"), root)
	variables := []string{"PATH=" + filepath.Join(root, "bin") + ":" + os.Getenv("PATH"), "GOROOT=" + root}
	program := filepath.Join(root, "program")
	succeeds(t, variables, tool, "build", "-o", program, "./testdata/plain")
	hasScheduler(t, program)
}

func TestInvalidCacheFolderIsReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, nil, 0o644)
	for folder, says := range map[string]string{
		file: "not a directory", "/proc/heddle": "no such file or directory",
	} {
		r := runWith(t, []string{"HEDDLE_GO_CACHE=" + folder}, tool, "build", "./testdata/plain")
		names := strings.Contains(r.errors, "heddle-go: the overlay: ") && strings.Contains(r.errors, folder)
		if r.status != 2 || !names ||
			!strings.HasSuffix(r.errors, says+"; HEDDLE_GO_CACHE chooses another folder\n") {
			t.Error(r)
		}
	}
}

// A file system of 64 KiB, visible only to the shell and its children.
func TestFullCacheIsReported(t *testing.T) {
	if output, err := exec.Command("unshare", "-rm", "true").CombinedOutput(); err != nil {
		t.Skipf("no private mount namespace: %v: %s", err, output)
	}
	script := `mount -t tmpfs -o size=64k tmpfs "$1" &&
		{ "$2" build ./testdata/plain; status=$?; ls -A "$1/overlay"; exit $status; }`
	folder := t.TempDir()
	variables := []string{"HEDDLE_GO_CACHE=" + folder}
	r := runWith(t, variables, "unshare", "-rm", "sh", "-c", script, "sh", folder, tool)
	const says = "no space left on device; HEDDLE_GO_CACHE chooses another folder\n"
	if r.status != 2 || !strings.HasSuffix(r.errors, says) {
		t.Error(r)
	}
	if r.out != "" {
		t.Error("left behind:", r.out)
	}
}
