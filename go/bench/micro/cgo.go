//go:build cgo

package main

/*
static unsigned long long nextInC(unsigned long long state) {
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dULL;
}
*/
import "C"

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// cgoPrograms change goroutines between calls of C.
var cgoPrograms = []program{
	{"cgo-spawn", each(32, cgoSpawn), 0x378ee5435fb06600},
	{"cgo-yield", each(64, cgoYield), 0x16fd0f1b9350cc00},
}

// cgoSpawn starts goroutines that call C once each, and waits for them.
func cgoSpawn(id uint64) uint64 {
	const rounds, goroutines = 200, 100
	var sum atomic.Uint64
	for round := range uint64(rounds) {
		var all sync.WaitGroup
		for g := range uint64(goroutines) {
			all.Go(func() {
				sum.Add(uint64(C.nextInC(C.ulonglong(id<<32 + round<<16 + g))))
			})
		}
		all.Wait()
	}
	return sum.Load()
}

// cgoYields is how often an item of cgo-yield yields.
const cgoYields = 20_000

// cgoYield yields to the next goroutine after each call of C.
func cgoYield(id uint64) (sum uint64) {
	for i := range uint64(cgoYields) {
		sum += uint64(C.nextInC(C.ulonglong(id*cgoYields + i)))
		runtime.Gosched()
	}
	return sum
}
