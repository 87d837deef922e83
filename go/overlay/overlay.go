package overlay

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Tag is the build tag by which package heddle knows that the scheduler is
// there.
const Tag = "heddle"

//go:embed _runtime/*.go
var added embed.FS

// An Overlay is ready for cmd/go.
type Overlay struct {
	Toolchain Toolchain
	// Root is the GOROOT to build with.
	Root string
	// JSON is the file for -overlay.
	JSON string
}

// Make finds the toolchain and writes its overlay into the user's cache, or
// finds it there. Nothing is written if an edit has no place.
func Make() (Overlay, error) {
	toolchain, err := Find()
	if err != nil {
		return Overlay{}, err
	}
	return toolchain.Overlay()
}

// Overlay is Make for a toolchain.
func (t Toolchain) Overlay() (Overlay, error) {
	files, err := t.files()
	if err != nil {
		return Overlay{}, err
	}
	cache, err := Cache()
	if err != nil {
		return Overlay{}, err
	}
	root, err := t.usable(cache)
	if err != nil {
		return Overlay{}, fmt.Errorf("links to the toolchain: %w", err)
	}
	json, err := write(filepath.Join(cache, "overlay"), filepath.Join(root, "src"), files)
	if err != nil {
		return Overlay{}, fmt.Errorf("the overlay: %w", err)
	}
	return Overlay{t, root, json}, nil
}

// files are those that the toolchain's builds see in place of its own, or
// beside them, by their names below GOROOT/src.
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

// Cache is the folder for what is made once: HEDDLE_GO_CACHE, else
// heddle/go in the user's cache.
func Cache() (string, error) {
	if folder := os.Getenv("HEDDLE_GO_CACHE"); folder != "" {
		return filepath.Abs(folder)
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep the overlay in: %w; set HEDDLE_GO_CACHE", err)
	}
	return filepath.Join(folder, "heddle", "go"), nil
}

// write puts files into a folder below dir that is named by what they are, and
// with them the description for cmd/go, whose name is returned.
func write(dir, src string, files map[string]string) (string, error) {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	hash := sha256.New()
	fmt.Fprintln(hash, src)
	for _, name := range names {
		fmt.Fprintf(hash, "%s %d\n%s", name, len(files[name]), files[name])
	}
	folder := filepath.Join(dir, hex.EncodeToString(hash.Sum(nil)[:12]))
	description := filepath.Join(folder, "overlay.json")
	if _, err := os.Stat(description); err == nil {
		return description, nil
	}
	return description, publish(folder, func(unfinished string) error {
		return fill(unfinished, folder, src, files)
	})
}

// fill writes files into a folder that will be called folder.
func fill(unfinished, folder, src string, files map[string]string) error {
	replace := map[string]string{}
	for name, text := range files {
		to := filepath.Join(unfinished, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return err
		}
		replace[filepath.Join(src, filepath.FromSlash(name))] = filepath.Join(folder, filepath.FromSlash(name))
	}
	description, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(unfinished, "overlay.json"), description, 0o644)
}
