package runtime

import _ "unsafe" // for linkname

// What package github.com/heddle-sched/heddle/go/heddle calls.

//go:linkname heddleActive
func heddleActive() bool {
	return heddle.on
}

//go:linkname heddleRead
func heddleRead(into *[8]uint64) {
	c := &heddle.counts
	into[0] = c.preemptions.Load()
	into[1] = c.skips.Load()
	into[2] = c.held.Load()
	into[3] = c.forced.Load()
	into[4] = c.waits.Load()
	into[5] = c.waited.Load()
	into[6] = c.longest.Load()
	into[7] = c.aged.Load()
}

//go:linkname heddleGetQuantum
func heddleGetQuantum() int64 {
	return heddle.quantum.Load()
}

// heddleSetQuantum is called with 0 or 10us to 10ms. Reports whether it has an
// effect: not if the program was started with HEDDLE_GO=off.
//
//go:linkname heddleSetQuantum
func heddleSetQuantum(ns int64) bool {
	if heddle.on {
		heddle.quantum.Store(ns)
		heddleRouse()
	}
	return heddle.on
}

//go:linkname heddleMark
func heddleMark(class uint8) {
	getg().heddleClass = class
}
