package kv

import (
	"context"
	"encoding/binary"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/heddle-sched/heddle/go/bench/internal/wire"
)

// Dataset is what the server holds: keys 0 to Keys, each with ValueSize bytes that differ from key
// to key. The bytes are those that `heddle kv serve` writes, so both answer with the same digests.
type Dataset struct {
	Keys      uint64
	ValueSize int
}

// batchKeys is how many keys are written and reported at a time.
const batchKeys = 10_000

// Progress receives the number of keys written so far.
type Progress func(written uint64)

// writeTo fills an empty database. The stream writer puts sorted keys straight into the tables of
// the last level, so a read searches one place and nothing is left to compact.
func (d Dataset) writeTo(ctx context.Context, db *badger.DB, progress Progress) error {
	w := db.NewStreamWriter()
	defer w.Cancel()
	if err := w.Prepare(); err != nil {
		return err
	}
	for from := uint64(0); from < d.Keys; from += batchKeys {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := min(from+batchKeys, d.Keys)
		if err := d.writeBatch(w, from, to); err != nil {
			return err
		}
		progress(to)
	}
	return w.Flush()
}

func (d Dataset) writeBatch(w *badger.StreamWriter, from, to uint64) error {
	batch := z.NewBuffer(1<<20, "heddle-bench")
	defer func() { _ = batch.Release() }()
	key, value := make([]byte, 0, wire.IDKeyLen), make([]byte, d.ValueSize)
	for id := from; id < to; id++ {
		fill(value, id)
		key = wire.AppendIDKey(key[:0], id)
		badger.KVToBuffer(&pb.KV{Key: key, Value: value, Version: 1}, batch)
	}
	return w.Write(batch)
}

// fill gives a value bytes that do not repeat from key to key.
func fill(value []byte, id uint64) {
	var word [8]byte
	for state := id; len(value) > 0; {
		state = mixed(state + 1)
		binary.LittleEndian.PutUint64(word[:], state)
		value = value[copy(value, word[:]):]
	}
}

// mixed is splitmix64's finaliser.
func mixed(state uint64) uint64 {
	z := state * 0x9e37_79b9_7f4a_7c15
	z = (z ^ (z >> 30)) * 0xbf58_476d_1ce4_e5b9
	z = (z ^ (z >> 27)) * 0x94d0_49bb_1331_11eb
	return z ^ (z >> 31)
}
