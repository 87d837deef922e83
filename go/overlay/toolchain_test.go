package overlay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReleases(t *testing.T) {
	for _, test := range []struct{ version, os, arch, says string }{
		{"go1.25", "linux", "amd64", ""},
		{"go1.25.14", "linux", "arm64", ""},
		{"go1.26rc1", "linux", "amd64", ""},
		{"go1.27.4 X:nodwarf5", "linux", "amd64", ""},
		{"go1.24.11", "linux", "amd64", "go1.24.11 is not supported (supported: Go 1.25, 1.26, 1.27)"},
		{"go1.99.0", "linux", "amd64", "go1.99.0 is not supported"},
		{"go1.2", "linux", "amd64", "go1.2 is not supported"},
		{"go2.25.0", "linux", "amd64", "go2.25.0 is not supported"},
		{"devel go1.26-0123456789", "linux", "amd64", "devel go1.26-0123456789 is not supported"},
		{"", "linux", "amd64", "is not supported"},
		{"go1.26.8", "darwin", "arm64",
			"darwin/arm64 is not supported: the overlay is for linux/amd64 and linux/arm64"},
		{"go1.26.8", "linux", "386", "linux/386 is not supported"},
		{"go1.26.8", "windows", "amd64", "windows/amd64 is not supported"},
	} {
		_, err := Toolchain{Version: test.version, OS: test.os, Arch: test.arch}.release()
		switch {
		case test.says == "" && err != nil, test.says != "" && err == nil:
			t.Errorf("%s, %s/%s: %v", test.version, test.os, test.arch, err)
		case err != nil && !strings.Contains(err.Error(), test.says):
			t.Errorf("%q does not say %q", err, test.says)
		}
	}
}

// The toolchain that an error recommends is supported.
func TestRecommendedToolchainIsSupported(t *testing.T) {
	_, err := Toolchain{Version: "go1.24.0", OS: "linux", Arch: "amd64"}.release()
	_, after, _ := strings.Cut(err.Error(), "`toolchain ")
	recommended, _, _ := strings.Cut(after, "`")
	if _, err := (Toolchain{Version: recommended, OS: "linux", Arch: "amd64"}).release(); err != nil {
		t.Error(err)
	}
}

func TestNoGoInPath(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	const says = "no command go in PATH; install Go 1.25 or newer"
	if _, err := Find(); err == nil || !strings.Contains(err.Error(), says) {
		t.Error(err)
	}
}

func TestFailingGoIsReported(t *testing.T) {
	bin := t.TempDir()
	for _, test := range []struct{ script, says string }{
		{"#!/bin/sh\nexit 3\n", "go env: exit status 3"},
		{"#!/bin/sh\necho nonsense\n", "go env: invalid character"},
	} {
		os.WriteFile(filepath.Join(bin, "go"), []byte(test.script), 0o755)
		t.Setenv("PATH", bin+":/bin:/usr/bin")
		if _, err := Find(); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v does not say %q", err, test.says)
		}
	}
}

func TestToolchainInTheModuleCacheIsLinked(t *testing.T) {
	modules, cache := t.TempDir(), t.TempDir()
	root := filepath.Join(modules, "golang.org", "toolchain@v0.0.1-go1.99.0")
	os.MkdirAll(filepath.Join(root, "bin"), 0o755)
	os.WriteFile(filepath.Join(root, "bin", "go"), []byte("text"), 0o755)
	toolchain := Toolchain{Version: "go1.99.0", Root: root, ModCache: modules}
	tree, err := toolchain.usable(cache)
	if err != nil || !strings.HasPrefix(tree, cache) {
		t.Fatal(tree, err)
	}
	if text, err := os.ReadFile(filepath.Join(tree, "bin", "go")); string(text) != "text" {
		t.Error(err)
	}
	before, _ := os.Stat(tree)
	again, err := toolchain.usable(cache)
	if after, _ := os.Stat(tree); err != nil || again != tree || !os.SameFile(before, after) {
		t.Error("the second use made another tree", again, err)
	}
	toolchain.Root += "-other"
	os.MkdirAll(toolchain.Root, 0o755)
	if other, err := toolchain.usable(cache); err != nil || other == tree {
		t.Error("another toolchain of the same version was given the same tree", err)
	}
}

func TestToolchainOutsideTheModuleCacheIsUsedDirectly(t *testing.T) {
	toolchain := Toolchain{Root: "/opt/modules-of-go", ModCache: "/opt/modules"}
	if root, err := toolchain.usable(t.TempDir()); root != toolchain.Root || err != nil {
		t.Error(root, err)
	}
}
