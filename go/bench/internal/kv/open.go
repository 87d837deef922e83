package kv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
)

// marker is the key whose value names the dataset of a directory. It sorts before all keys of the
// dataset, so no scan of them meets it.
var marker = []byte("heddle-bench:dataset")

func (d Dataset) String() string {
	return fmt.Sprintf("%d keys of %d bytes", d.Keys, d.ValueSize)
}

// OpenInMemory loads the dataset into memory.
func OpenInMemory(ctx context.Context, d Dataset, progress Progress) (*Store, error) {
	db, err := badger.Open(settings(""))
	if err != nil {
		return nil, fmt.Errorf("Badger cannot open a database in memory: %w", err)
	}
	if err := d.writeTo(ctx, db, progress); err != nil {
		return nil, errors.Join(fmt.Errorf("the keys cannot be loaded: %w", err), db.Close())
	}
	return &Store{db}, nil
}

// Open opens the directory that holds the dataset. If it is missing or empty, the dataset is
// loaded first. A directory that holds anything else is an error and is not changed.
func Open(ctx context.Context, dir string, d Dataset, progress Progress) (*Store, error) {
	dir = filepath.Clean(dir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the directory %s cannot be read: %w", dir, err)
	}
	if len(entries) == 0 {
		if err := load(ctx, dir, d, progress); err != nil {
			return nil, fmt.Errorf("the keys cannot be loaded into %s: %w", dir, err)
		}
	}
	return reopen(dir, d)
}

// load writes the dataset to a directory beside dir and renames it to dir when it is complete: an
// interrupted load leaves no directory that looks loaded.
func load(ctx context.Context, dir string, d Dataset, progress Progress) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	unfinished, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".loading-*")
	if err != nil {
		return err
	}
	// After the rename there is nothing left to remove.
	defer func() { _ = os.RemoveAll(unfinished) }()
	if err := write(ctx, unfinished, d, progress); err != nil {
		return err
	}
	// os.Rename does not replace an empty directory. If dir is not empty it stays, and the rename
	// fails.
	_ = os.Remove(dir)
	return os.Rename(unfinished, dir)
}

func write(ctx context.Context, dir string, d Dataset, progress Progress) error {
	db, err := badger.Open(settings(dir))
	if err != nil {
		return err
	}
	err = d.writeTo(ctx, db, progress)
	if err == nil {
		err = db.Update(func(txn *badger.Txn) error { return txn.Set(marker, []byte(d.String())) })
	}
	return errors.Join(err, db.Close())
}

func reopen(dir string, d Dataset) (*Store, error) {
	if _, err := os.Stat(filepath.Join(dir, badger.ManifestFilename)); err != nil {
		return nil, fmt.Errorf("%s holds no database; choose another directory with -dir", dir)
	}
	db, err := badger.Open(settings(dir))
	if err != nil {
		return nil, fmt.Errorf("Badger cannot open %s: %w", dir, err)
	}
	if err := d.check(db); err != nil {
		return nil, errors.Join(fmt.Errorf("%s holds %w", dir, err), db.Close())
	}
	return &Store{db}, nil
}

// check compares the marker.
func (d Dataset) check(db *badger.DB) error {
	return db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(marker)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return errors.New("a database of something else; choose another directory with -dir")
		} else if err != nil {
			return err
		}
		return item.Value(func(held []byte) error {
			if string(held) != d.String() {
				return fmt.Errorf("%s, not %s; choose another directory with -dir, or remove this one", held, d)
			}
			return nil
		})
	})
}

// Warm reads every key once, so that no request of the measured phase is the first to touch a page.
func (s *Store) Warm() error {
	_, err := s.Scan(nil, ^uint32(0))
	return err
}
