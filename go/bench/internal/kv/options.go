package kv

import (
	"math"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// settings returns Badger's options for a measured phase in which only requests may run: no
// compaction, no metrics, no log. An empty dir keeps everything in memory.
//
// Blocks are not compressed, so Badger reads them where they are mapped, and a block cache would
// save nothing: every read would report to the cache's own goroutines. Values stay in the tables
// beside their keys, because Badger's default value threshold is the maximum.
func settings(dir string) badger.Options {
	o := badger.DefaultOptions(dir)
	o.InMemory = dir == ""
	o.Logger = nil
	o.MetricsEnabled = false
	o.DetectConflicts = false
	o.Compression = options.None
	o.BlockCacheSize = 0
	o.NumGoroutines = 1
	o.NumCompactors = 0
	// Without compaction level 0 only grows; a PUT must not wait for a compaction that never
	// comes.
	o.NumLevelZeroTablesStall = math.MaxInt32
	return o
}
