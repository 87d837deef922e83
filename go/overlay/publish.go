package overlay

import (
	"os"
	"path/filepath"
)

// publish creates a folder, unless it exists and is whole, by filling another one and renaming it.
// No reader ever sees it half-filled, and of two concurrent writers the second uses the first
// one's. A killed writer leaves a folder .unfinished-* behind, which is never read.
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
	// It exists but is damaged. A build that reads it now fails anyway.
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.Rename(unfinished, folder)
}

func exists(folder string) bool {
	_, err := os.Stat(folder)
	return err == nil
}
