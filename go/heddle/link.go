package heddle

import _ "unsafe" // for linkname

// A table holds the scheduler's functions for this package. It mirrors heddleTable in
// overlay/_runtime/zheddle_link.go: change both together, and version in both.
type table struct {
	version    uintptr
	active     func() bool
	read       func() [10]uint64
	quantum    func() int64
	setQuantum func(ns int64) bool
	mark       func(class uint8)
}

// version is that of the table that this package knows.
const version = 1

// scheduler is nil in the runtime of a stock toolchain. In Heddle's, package runtime has a
// variable with this name and a value, which the linker takes instead of this one. So the runtime
// in the program decides, not a build tag or how the program was built.
//
//go:linkname scheduler runtime.heddleScheduler
var scheduler *table

func init() {
	if scheduler != nil && scheduler.version != version {
		panic("heddle: the program was built with a version of heddle go " +
			"other than that of package heddle in its go.mod")
	}
}
