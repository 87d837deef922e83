package runtime

import (
	"internal/runtime/atomic"
	_ "unsafe" // for linkname
)

// heddleTable is what package github.com/heddle-sched/heddle/go/heddle calls. It mirrors table in
// heddle/link.go: change both together, and heddleVersion in both.
type heddleTable struct {
	version    uintptr
	active     func() bool
	read       func() [10]uint64
	quantum    func() int64
	setQuantum func(ns int64) bool
	mark       func(class uint8)
}

const heddleVersion = 1

// heddleScheduler replaces the package's own variable of that name, which has no value.
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

func heddleRead() [10]uint64 {
	c := heddle.counts
	return [10]uint64{
		atomic.Load64(&c.preemptions),
		c.skips.Load(),
		c.held.Load(),
		c.forced.Load(),
		atomic.Load64(&c.waits),
		atomic.Load64(&c.waited),
		atomic.Load64(&c.longest),
		atomic.Load64(&c.aged),
		c.ticks.Load(),
		c.timerCalls.Load(),
	}
}

func heddleGetQuantum() int64 {
	return heddle.quantum.Load()
}

// heddleSetQuantum takes 0 or 10us to 10ms. Reports whether it has an effect: not if the program
// was started with HEDDLE_GO=off.
func heddleSetQuantum(ns int64) bool {
	if heddle.on {
		heddle.quantum.Store(ns)
		heddleNotify()
	}
	return heddle.on
}

func heddleMark(class uint8) {
	getg().heddleClass = class
	if class == heddleBatch && heddle.isAdaptive {
		heddleEnforce(nanotime())
	}
}
