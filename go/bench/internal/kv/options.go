package kv

import (
	"math"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// settings are Badger's for a measured phase in which nothing but requests shall run: no compaction, no
// metrics, no log. An empty dir keeps everything in memory.
//
// Blocks are not compressed, so Badger reads them where they are mapped and a block cache has nothing to
// save: with one, every read would report to the cache's own goroutines. Values stay in the tables
// beside their keys, because Badger's default value threshold is as high as it goes.
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
	// Without compaction level 0 only grows; a PUT must never wait for what will not come.
	o.NumLevelZeroTablesStall = math.MaxInt32
	return o
}
