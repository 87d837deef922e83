package kv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/heddle-sched/heddle/go/bench/internal/wire"
)

var small = Dataset{Keys: 20_050, ValueSize: 100}

// The answers of `heddle kv serve` to the same requests on values of 100 bytes.
var (
	key42  = Result{Keys: 1, Bytes: 100, Digest: 0x0327cffb}
	from42 = Result{Keys: 100, Bytes: 10_000, Digest: 0x0d9ea706}
)

func key(id uint64) []byte { return wire.AppendIDKey(nil, id) }

// opened fails the test unless the dataset is loaded exactly if loads is set.
func opened(t *testing.T, dir string, d Dataset, loads bool) *Store {
	t.Helper()
	var written uint64
	store, err := Open(context.Background(), dir, d, func(n uint64) { written = n })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if loads != (written == d.Keys) {
		t.Fatalf("%d keys were written", written)
	}
	return store
}

func check(t *testing.T, store *Store) {
	t.Helper()
	for _, c := range []struct {
		name string
		want Result
		read func() (Result, error)
	}{
		{"a key", key42, func() (Result, error) { return store.Get(key(42)) }},
		{"no key", Result{}, func() (Result, error) { return store.Get(key(small.Keys)) }},
		{"a scan", from42, func() (Result, error) { return store.Scan(key(42), 100) }},
		{"a scan of none", Result{}, func() (Result, error) { return store.Scan(key(42), 0) }},
		{"a scan after all", Result{}, func() (Result, error) { return store.Scan(key(small.Keys), 9) }},
	} {
		if got, err := c.read(); err != nil || got != c.want {
			t.Errorf("%s: %+v, want %+v (%v)", c.name, got, c.want, err)
		}
	}
	all, err := store.Scan(key(0), 1_000_000)
	if err != nil || all.Keys != uint32(small.Keys) || all.Bytes != all.Keys*100 {
		t.Errorf("a scan of all: %+v (%v)", all, err)
	}
}

func TestMemoryStoreAnswersLikeTheRustServer(t *testing.T) {
	store, err := OpenInMemory(context.Background(), small, func(uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Warm(); err != nil {
		t.Error(err)
	}
	check(t, store)
}

func TestDirectoryIsLoadedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "db")
	store := opened(t, dir, small, true)
	check(t, store)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	check(t, opened(t, dir, small, false))
}

func TestEmptyDirectoryIsLoaded(t *testing.T) {
	check(t, opened(t, t.TempDir(), small, true))
}

func TestPutValuesAreRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	store := opened(t, dir, small, true)
	if _, err := store.Put(key(42), []byte("weft")); err != nil {
		t.Fatal(err)
	}
	want := Result{Keys: 1, Bytes: 4, Digest: wire.Digest(0, []byte("weft"))}
	if got, err := store.Get(key(42)); err != nil || got != want {
		t.Errorf("%+v, want %+v (%v)", got, want, err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := opened(t, dir, small, false).Get(key(42)); err != nil || got != want {
		t.Errorf("after a restart %+v, want %+v (%v)", got, want, err)
	}
}

// refused expects Open to fail.
func refused(t *testing.T, dir string, d Dataset, want string) {
	t.Helper()
	store, err := Open(context.Background(), dir, d, func(uint64) { t.Error("keys were written") })
	if err == nil {
		_ = store.Close()
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestOtherDatasetIsRefusedAndStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	if err := opened(t, dir, small, true).Close(); err != nil {
		t.Fatal(err)
	}
	more := Dataset{Keys: small.Keys + 1, ValueSize: small.ValueSize}
	refused(t, dir, more, "holds 20050 keys of 100 bytes, not 20051 keys of 100 bytes; choose another")
	longer := Dataset{Keys: small.Keys, ValueSize: small.ValueSize + 1}
	refused(t, dir, longer, "not 20050 keys of 101 bytes")
	check(t, opened(t, dir, small, false))
}

func TestForeignDirectoriesAreRefusedAndStay(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "letter")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, small, "holds no database")
	refused(t, file, small, "cannot be read")
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("%q (%v)", text, err)
	}

	foreign := t.TempDir()
	db, err := badger.Open(settings(foreign))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	refused(t, foreign, small, "a database of something else")
}

func TestDirectoryInUseIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	opened(t, dir, small, true)
	refused(t, dir, small, "Cannot acquire directory lock")
}

func TestInterruptedLoadLeavesNothing(t *testing.T) {
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Open(ctx, filepath.Join(parent, "db"), small, func(uint64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("%v was left (%v)", left, err)
	}
}
