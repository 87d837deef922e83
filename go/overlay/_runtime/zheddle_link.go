package runtime

import _ "unsafe" // for linkname

// heddleTable is what package github.com/heddle-sched/heddle/go/heddle calls. Its
// twin is table in heddle/link.go: whoever changes one changes the other, and
// heddleVersion in both.
type heddleTable struct {
	version    uintptr
	active     func() bool
	read       func() [8]uint64
	quantum    func() int64
	setQuantum func(ns int64) bool
	mark       func(class uint8)
}

const heddleVersion = 1

// heddleScheduler stands in the place of the package's own variable of that name,
// which has no value.
//
//go:linkname heddleScheduler
var heddleScheduler = &heddleTable{
	version:    heddleVersion,
	active:     heddleActive,
	read:       heddleRead,
	quantum:    heddleGetQuantum,
	setQuantum: heddleSetQuantum,
	mark:       heddleMark,
}

func heddleActive() bool {
	return heddle.on
}

func heddleRead() [8]uint64 {
	c := &heddle.counts
	return [8]uint64{
		c.preemptions.Load(),
		c.skips.Load(),
		c.held.Load(),
		c.forced.Load(),
		c.waits.Load(),
		c.waited.Load(),
		c.longest.Load(),
		c.aged.Load(),
	}
}

func heddleGetQuantum() int64 {
	return heddle.quantum.Load()
}

// heddleSetQuantum is called with 0 or 10us to 10ms. Reports whether it has an
// effect: not if the program was started with HEDDLE_GO=off.
func heddleSetQuantum(ns int64) bool {
	if heddle.on {
		heddle.quantum.Store(ns)
		heddleRouse()
	}
	return heddle.on
}

func heddleMark(class uint8) {
	getg().heddleClass = class
}
