package overlay

import (
	"os"
	"path/filepath"
)

// publish makes a folder, unless it is there and whole, by filling another one
// and renaming it: nobody ever sees it half-filled, and of two who make it at
// once the second finds it made. Who is killed leaves a folder .unfinished-*
// behind that nobody looks at.
func publish(folder string, isWhole func(folder string) bool, fill func(unfinished string) error) error {
	if isWhole(folder) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	unfinished, err := os.MkdirTemp(filepath.Dir(folder), ".unfinished-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unfinished)
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return err
	}
	if err := fill(unfinished); err != nil {
		return err
	}
	err = os.Rename(unfinished, folder)
	if err == nil || isWhole(folder) {
		return nil
	}
	// There, and not what it should be. A build that reads it now fails anyway.
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.Rename(unfinished, folder)
}

func isThere(folder string) bool {
	_, err := os.Stat(folder)
	return err == nil
}
