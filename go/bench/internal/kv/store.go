// Package kv is the store behind the server: a dataset on BadgerDB.
package kv

import (
	"errors"

	"github.com/dgraph-io/badger/v4"

	"github.com/heddle-sched/heddle/go/bench/internal/wire"
)

// Store is an open database that holds a [Dataset].
type Store struct {
	db *badger.DB
}

// Result is what an operation read or wrote.
type Result struct {
	Keys   uint32
	Bytes  uint32
	Digest uint32 // of the values read, in order
}

func (r *Result) add(value []byte) error {
	r.Keys++
	r.Bytes += uint32(len(value))
	r.Digest = wire.Digest(r.Digest, value)
	return nil
}

// Get reads one key; Keys of the result is 0 if it does not exist.
func (s *Store) Get(key []byte) (found Result, err error) {
	err = s.db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if err != nil {
			return err
		}
		return item.Value(found.add)
	})
	if errors.Is(err, badger.ErrKeyNotFound) {
		return Result{}, nil
	}
	return found, err
}

// Scan reads at most count keys in order, starting with the first that is not below from.
//
// Values are not prefetched: Badger prefetches each in a goroutine of its own, which would turn
// one long request into thousands of short ones and hide what the bench must show, a request that
// blocks others.
func (s *Store) Scan(from []byte, count uint32) (found Result, err error) {
	err = s.db.View(func(txn *badger.Txn) error {
		items := txn.NewIterator(badger.IteratorOptions{PrefetchValues: false})
		defer items.Close()
		for items.Seek(from); items.Valid() && found.Keys < count; items.Next() {
			if err := items.Item().Value(found.add); err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// Put writes one key.
func (s *Store) Put(key, value []byte) (Result, error) {
	err := s.db.Update(func(txn *badger.Txn) error { return txn.Set(key, value) })
	return Result{Bytes: uint32(len(value))}, err
}

// Close closes the store; all requests must have ended.
func (s *Store) Close() error { return s.db.Close() }
