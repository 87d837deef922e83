package kv

import (
	"context"
	"testing"

	"github.com/heddle-sched/heddle/go/bench/internal/wire"
)

func benchStore(b *testing.B) (*Store, Dataset) {
	d := Dataset{Keys: 200_000, ValueSize: 100}
	store, err := Open(context.Background(), b.TempDir()+"/db", d, func(uint64) {})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	if err := store.Warm(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return store, d
}

func BenchmarkGet(b *testing.B) {
	store, d := benchStore(b)
	key := make([]byte, 0, wire.IDKeyLen)
	for i := uint64(0); b.Loop(); i++ {
		if found, err := store.Get(wire.AppendIDKey(key, mixed(i)%d.Keys)); err != nil || found.Keys != 1 {
			b.Fatal(found, err)
		}
	}
}

func BenchmarkScan4000(b *testing.B) {
	store, d := benchStore(b)
	key := make([]byte, 0, wire.IDKeyLen)
	for i := uint64(0); b.Loop(); i++ {
		from := wire.AppendIDKey(key, mixed(i)%(d.Keys-4000))
		if found, err := store.Scan(from, 4000); err != nil || found.Keys != 4000 {
			b.Fatal(found, err)
		}
	}
}
