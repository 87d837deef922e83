package overlay

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tag is the build tag of builds with the scheduler.
const Tag = "heddle"

//go:embed _runtime/*.go
var added embed.FS

// An Overlay is an overlay that is ready for cmd/go.
type Overlay struct {
	Toolchain Toolchain
	// Root is the GOROOT to build with.
	Root string
	// JSON is the file for -overlay.
	JSON string
	// Modules is a module cache for use if go has none because there is no home: cmd/go then
	// treats every file as part of the module cache, which no overlay may replace.
	Modules string
}

const elsewhere = "; HEDDLE_GO_CACHE chooses another folder"

// Make finds the toolchain, and writes its overlay into the user's cache unless it is already
// there. Nothing is written unless every edit fits.
func Make() (Overlay, error) {
	toolchain, err := Find()
	if err != nil {
		return Overlay{}, err
	}
	return toolchain.Overlay()
}

// Overlay is Make for a given toolchain.
func (t Toolchain) Overlay() (Overlay, error) {
	files, err := t.files()
	if err != nil {
		return Overlay{}, err
	}
	cache, err := t.folder()
	if err != nil {
		return Overlay{}, err
	}
	root, err := t.usable(cache)
	if err != nil {
		return Overlay{}, fmt.Errorf("links to the toolchain: %w%s", err, elsewhere)
	}
	json, err := write(filepath.Join(cache, "overlay"), filepath.Join(root, "src"), files)
	if err != nil {
		return Overlay{}, fmt.Errorf("the overlay: %w%s", err, elsewhere)
	}
	return Overlay{t, root, json, filepath.Join(cache, "modules")}, nil
}

// files returns the files that builds see instead of, or beside, the toolchain's own, by their
// names below GOROOT/src.
func (t Toolchain) files() (map[string]string, error) {
	release, err := t.release()
	if err != nil {
		return nil, err
	}
	files, err := patched(filepath.Join(t.Root, "src"), t.Version, edits)
	if err != nil {
		return nil, err
	}
	ours, err := fs.Glob(added, "_runtime/*.go")
	if err != nil {
		return nil, err
	}
	for _, name := range ours {
		text, err := added.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files["runtime/"+strings.TrimPrefix(name, "_runtime/")] = strings.Replace(string(text),
			`"internal/runtime/syscall/linux"`, fmt.Sprintf("linux %q", release.syscalls), 1)
	}
	return files, nil
}

// folder returns the cache folder: HEDDLE_GO_CACHE, or heddle/go in the user's cache, or, without
// a home, in go's own cache, which go does not clean there.
func (t Toolchain) folder() (string, error) {
	if folder := os.Getenv("HEDDLE_GO_CACHE"); folder != "" {
		return filepath.Abs(folder)
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		folder = t.Cache
	}
	if !filepath.IsAbs(folder) {
		return "", errors.New("no folder to keep the overlay in: " +
			"none of HOME, XDG_CACHE_HOME, GOCACHE and HEDDLE_GO_CACHE is an absolute path; " +
			"set HOME, or GOCACHE, which go itself needs without it")
	}
	return filepath.Join(folder, "heddle", "go"), nil
}

// write puts files into a folder below dir named by their digest, together with the description
// for cmd/go, whose path it returns. An existing folder is reused unless its files have been
// changed.
func write(dir, src string, files map[string]string) (string, error) {
	folder := filepath.Join(dir, digest(src, files))
	all, err := describe(folder, src, files)
	if err != nil {
		return "", err
	}
	isWhole := func(folder string) bool { return holds(folder, all) }
	return filepath.Join(folder, description), publish(folder, isWhole, func(unfinished string) error {
		return fill(unfinished, all)
	})
}

const description = "overlay.json"

func digest(src string, files map[string]string) string {
	hash := sha256.New()
	fmt.Fprintln(hash, src)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "%s %d\n%s", name, len(files[name]), files[name])
	}
	return hex.EncodeToString(hash.Sum(nil)[:12])
}

// describe returns files together with their description for cmd/go.
func describe(folder, src string, files map[string]string) (map[string]string, error) {
	replace := map[string]string{}
	for name := range files {
		replace[filepath.Join(src, filepath.FromSlash(name))] = filepath.Join(folder, filepath.FromSlash(name))
	}
	text, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return nil, err
	}
	all := maps.Clone(files)
	all[description] = string(text)
	return all, nil
}

// holds reports whether folder holds exactly these contents for these files.
func holds(folder string, files map[string]string) bool {
	for name, want := range files {
		text, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name)))
		if err != nil || string(text) != want {
			return false
		}
	}
	return true
}

func fill(folder string, files map[string]string) error {
	for name, text := range files {
		to := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
