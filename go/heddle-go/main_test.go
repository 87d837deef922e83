package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tool is the command, built for these tests.
var tool string

// The installed Go must be unchanged when all tests have run.
func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "heddle-go-")
	if err != nil {
		panic(err)
	}
	before := fingerprint()
	tool = filepath.Join(folder, "heddle-go")
	status := 1
	if output, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s", err, output)
	} else {
		status = m.Run()
	}
	if fingerprint() != before {
		fmt.Fprintln(os.Stderr, "the installed Go has been changed")
		status = 1
	}
	os.RemoveAll(folder)
	os.Exit(status)
}

// fingerprint covers the sources that edits change, and the commands.
func fingerprint() string {
	hash := sha256.New()
	root := goroot()
	for _, part := range []string{"src/runtime", "src/sync", "src/internal/sync", "bin"} {
		err := filepath.WalkDir(filepath.Join(root, part), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			fmt.Fprintln(hash, path, len(text))
			hash.Write(text)
			return err
		})
		if err != nil {
			panic(err)
		}
	}
	return string(hash.Sum(nil))
}

func goroot() string {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(root))
}

// A result is a command's exit status and output.
type result struct {
	status      int
	out, errors string
}

func (r result) String() string {
	return fmt.Sprintf("status %d\n%s%s", r.status, r.out, r.errors)
}

// runWith runs a command with additional environment variables. A command that hangs is made to
// print its goroutines and killed.
func runWith(t *testing.T, variables []string, name string, args ...string) result {
	t.Helper()
	patience, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(patience, name, args...)
	command.Env = append(os.Environ(), variables...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGQUIT) }
	command.WaitDelay = 20 * time.Second
	var out, output bytes.Buffer
	command.Stdout, command.Stderr = &out, &output
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{command.ProcessState.ExitCode(), out.String(), output.String()}
}

// succeeds is runWith for a command that must not fail.
func succeeds(t *testing.T, variables []string, name string, args ...string) result {
	t.Helper()
	r := runWith(t, variables, name, args...)
	if r.status != 0 {
		t.Fatalf("%s %q: %v", name, args, r)
	}
	return r
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	for _, test := range []struct{ args, says string }{
		{"", "no command given: build, run"},
		{"bild .", `"bild" is not a command of heddle-go (build, run`},
		{"check now", `check takes only --json: ["now"]`},
		{"flags -x", `flags takes no arguments: ["-x"]`},
		{"build -overlay=o.json .", "-overlay: cmd/go takes one overlay"},
		{"build -C /nowhere .", "chdir /nowhere: no such file or directory"},
	} {
		r := runWith(t, nil, tool, strings.Fields(test.args)...)
		if r.status != 2 || r.out != "" || !strings.HasPrefix(r.errors, "heddle-go: "+test.says) {
			t.Errorf("heddle-go %s: %v", test.args, r)
		}
	}
}

func TestExitStatusOfGoIsPassedOn(t *testing.T) {
	if r := runWith(t, nil, tool, "build", "./nowhere"); r.status != 1 || !strings.Contains(r.errors, "nowhere") {
		t.Error(r)
	}
	if r := runWith(t, nil, tool, "build", "-nonsense"); r.status != 2 || !strings.Contains(r.errors, "-nonsense") {
		t.Error(r)
	}
}

func TestCheck(t *testing.T) {
	r := succeeds(t, nil, tool, "check")
	if !strings.HasPrefix(r.out, runtime.Version()+" in "+goroot()+": supported\n") {
		t.Error(r)
	}
	var found map[string]any
	r = succeeds(t, nil, tool, "check", "--json")
	if err := json.Unmarshal([]byte(r.out), &found); err != nil {
		t.Fatal(err, r)
	}
	isComplete := found["why"] == nil && found["overlay"] != nil
	if found["support"] != "full" || found["version"] != runtime.Version() || !isComplete {
		t.Error(found)
	}
}

// If go.mod or go.work selects a Go that is not installed, check names it, and does not blame
// Heddle.
func TestCheckNamesTheToolchainSelectedByGoMod(t *testing.T) {
	for _, test := range []struct{ mod, work, choice, says string }{
		{"go 1.25", "", "local", ": supported\n"},
		{"go 1.25\n\ntoolchain go1.27.99", "", "local", ": supported\n"}, // which go ignores then
		{"go 1.27.99", "", "local", "/go.mod selects go1.27.99, and GOTOOLCHAIN=local keeps go at VERSION; " +
			"GOTOOLCHAIN=auto fetches a newer one, which is supported\n"},
		{"go 1.25", "go 1.27.99", "local", "/go.work selects go1.27.99, and GOTOOLCHAIN=local keeps go at VERSION; " +
			"GOTOOLCHAIN=auto"},
		{"go 1.99", "", "local", "/go.mod selects go1.99, and GOTOOLCHAIN=local keeps go at VERSION; " +
			"go1.99 is not supported (supported: Go 1.25, "},
		{"go 1.99", "", "local", "/go.mod allows none of these (its line `go 1.99`); " +
			"a newer version of Heddle may support what it requires\n"},
	} {
		folder := t.TempDir()
		os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module example\n\n"+test.mod+"\n"), 0o644)
		if test.work != "" {
			os.WriteFile(filepath.Join(folder, "go.work"), []byte(test.work+"\n\nuse .\n"), 0o644)
		}
		r := runWith(t, []string{"GOTOOLCHAIN=" + test.choice}, "sh", "-c", "cd "+folder+" && "+tool+" check")
		says := strings.ReplaceAll(test.says, "VERSION", runtime.Version())
		isSupported := test.says == ": supported\n"
		if (r.status == 0) != isSupported || !strings.Contains(r.out, says) || r.errors != "" {
			t.Errorf("%q, %q: %v", test.mod, test.work, r)
		}
	}
}

// heddle, the command in Rust, runs this one under the name that the user typed.
func TestMessagesNameTheTypedCommand(t *testing.T) {
	for _, name := range []string{"heddle go", "heddle-go"} {
		for _, test := range []struct {
			args []string
			says string
		}{
			{[]string{"bild"}, name + `: "bild" is not a command of ` + name + " ("},
			{[]string{"build", "-overlay=x", "."}, name + ": -overlay: cmd/go takes one overlay"},
			{[]string{"help"}, name + " builds Go programs"},
			{[]string{"check"}, "\n  build with: " + name + " build\n"},
		} {
			command := exec.Command(tool)
			command.Args = append([]string{name}, test.args...)
			output, _ := command.CombinedOutput()
			other := map[string]string{"heddle go": "heddle-go", "heddle-go": "heddle go"}[name]
			if !strings.Contains(string(output), test.says) || strings.Contains(string(output), other) {
				t.Errorf("%s %q: %s", name, test.args, output)
			}
		}
	}
}

// As in a container without a home, where go works if it has a cache.
func TestWithoutAHomeTheCacheIsInGocache(t *testing.T) {
	gos, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	variables := []string{"HOME=", "XDG_CACHE_HOME=", "HEDDLE_GO_CACHE=", "GOPATH=", "GOMODCACHE=", "GOENV=off"}
	withCache := append(variables, "GOCACHE="+strings.TrimSpace(string(gos)))
	r := succeeds(t, withCache, tool, "run", "./testdata/active")
	if !strings.HasPrefix(r.out, "true ") {
		t.Error(r)
	}
	succeeds(t, withCache, tool, "check")
	r = runWith(t, withCache, tool, "flags")
	const needsCache = "heddle-go: go takes no overlay without a module cache: set HOME, GOPATH or GOMODCACHE\n"
	if r.status != 2 || r.errors != needsCache {
		t.Error(r)
	}
	r = runWith(t, append(variables, "GOCACHE="), tool, "build", "./testdata/active")
	if r.status != 2 || r.errors != "heddle-go: no folder to keep the overlay in: "+
		"none of HOME, XDG_CACHE_HOME, GOCACHE and HEDDLE_GO_CACHE "+
		"is an absolute path; set HOME, or GOCACHE, which go itself needs without it\n" {
		t.Error(r)
	}
}

// The other architecture is compiled too.
func TestCheckForArm64(t *testing.T) {
	succeeds(t, []string{"GOARCH=arm64"}, tool, "check")
}

func TestOtherSystemsAreRefused(t *testing.T) {
	for _, other := range []string{"darwin/arm64", "windows/amd64", "linux/386"} {
		system, arch, _ := strings.Cut(other, "/")
		variables := []string{"GOOS=" + system, "GOARCH=" + arch}
		says := other + " is not supported: the overlay is for linux/amd64 and linux/arm64"
		isRefused := func(r result) bool {
			return r.status == 1 && r.errors == "" && strings.Count(r.out, "not supported") == 1
		}
		if r := runWith(t, variables, tool, "check"); !isRefused(r) || !strings.Contains(r.out, says) {
			t.Error(r)
		}
		r := runWith(t, variables, tool, "build", "./testdata/plain")
		if r.status != 2 || r.errors != "heddle-go: "+says+"\n" {
			t.Error(r)
		}
	}
}

// A go in PATH that claims to be of an unknown release.
func TestUnknownReleaseIsRefused(t *testing.T) {
	bin := t.TempDir()
	stock := filepath.Join(goroot(), "bin", "go")
	script := "#!/bin/sh\n" + stock + ` "$@" | sed 's/"go1[.].*"/"go1.99.7"/'` + "\n"
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	variables := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HEDDLE_GO_CACHE=" + cache}
	says := "go1.99.7 is not supported (supported: Go 1.25, "
	r := runWith(t, variables, tool, "check")
	if r.status != 1 || strings.Count(r.out, "not supported") != 1 || !strings.Contains(r.out, says) {
		t.Error(r)
	}
	r = runWith(t, variables, tool, "check", "--json")
	var found map[string]any
	err := json.Unmarshal([]byte(r.out), &found)
	if err != nil || r.status != 1 || found["support"] != "none" || !strings.HasPrefix(found["why"].(string), says) {
		t.Error(r, err)
	}
	r = runWith(t, variables, tool, "run", "./testdata/plain")
	if r.status != 2 || !strings.HasPrefix(r.errors, "heddle-go: "+says) {
		t.Error(r)
	}
	if left, _ := os.ReadDir(cache); len(left) != 0 {
		t.Error("written:", left)
	}
}
