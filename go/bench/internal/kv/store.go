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

// Found is what an operation read or wrote.
type Found struct {
	Keys   uint32
	Bytes  uint32
	Digest uint32 // of the values read, in order
}

func (f *Found) add(value []byte) error {
	f.Keys++
	f.Bytes += uint32(len(value))
	f.Digest = wire.Digest(f.Digest, value)
	return nil
}

// Get reads one key; found.Keys is 0 where it does not exist.
func (s *Store) Get(key []byte) (found Found, err error) {
	err = s.db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if err != nil {
			return err
		}
		return item.Value(found.add)
	})
	if errors.Is(err, badger.ErrKeyNotFound) {
		return Found{}, nil
	}
	return found, err
}

// Scan reads at most count keys in order, from the first that is not below from.
//
// Values are not prefetched: Badger prefetches each in a goroutine of its own, which would turn one long
// request into thousands of short ones and hide what the bench is to show, a request that blocks others.
func (s *Store) Scan(from []byte, count uint32) (found Found, err error) {
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
func (s *Store) Put(key, value []byte) (Found, error) {
	err := s.db.Update(func(txn *badger.Txn) error { return txn.Set(key, value) })
	return Found{Bytes: uint32(len(value))}, err
}

// Close ends the store; all requests must have ended.
func (s *Store) Close() error { return s.db.Close() }
