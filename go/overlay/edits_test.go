package overlay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// installed returns the toolchains that tests run with: the one of this machine and those that
// scripts/test-go has fetched.
func installed(t *testing.T) []Toolchain {
	t.Helper()
	local, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	all := []Toolchain{local}
	for _, version := range strings.Fields(os.Getenv("HEDDLE_TEST_TOOLCHAINS")) {
		other := local
		other.Version = version
		folder := "toolchain@v0.0.1-" + version + "." + local.OS + "-" + local.Arch
		other.Root = filepath.Join(local.ModCache, "golang.org", folder)
		all = append(all, other)
	}
	return all
}

func TestEachAnchorOccursOnceInTheInstalledToolchain(t *testing.T) {
	for _, toolchain := range installed(t) {
		for _, e := range edits {
			path := filepath.Join(toolchain.Root, "src", filepath.FromSlash(e.file))
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := apply(string(text), toolchain.Version, e); err != nil {
				t.Error(err)
			}
		}
	}
}

// Edits of one declaration are made one after the other: none may remove or duplicate another
// one's anchor.
func TestEditsDoNotConflict(t *testing.T) {
	for _, toolchain := range installed(t) {
		files, err := toolchain.files()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range edits {
			if !strings.Contains(files[e.file], e.with) {
				t.Errorf("%s: %s, %s: %q has been edited away", toolchain.Version, e.file, e.decl, e.with)
			}
		}
	}
}

func TestAddedFilesImportPackagesOfTheRelease(t *testing.T) {
	for _, toolchain := range installed(t) {
		release, err := toolchain.release()
		if err != nil {
			t.Fatal(err)
		}
		files, err := toolchain.files()
		if err != nil {
			t.Fatal(err)
		}
		imports := 0
		for name, text := range files {
			if strings.HasPrefix(name, "runtime/zheddle") {
				imports += strings.Count(text, `linux "`+release.syscalls+`"`)
			}
		}
		if imports == 0 {
			t.Errorf("%s: no added file imports %s", toolchain.Version, release.syscalls)
		}
	}
}
