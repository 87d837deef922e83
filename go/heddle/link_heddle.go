//go:build heddle

package heddle

import _ "unsafe" // for linkname

// These are in overlay/_runtime/zheddle_link.go.

//go:linkname active runtime.heddleActive
func active() bool

//go:linkname read runtime.heddleRead
//go:noescape
func read(into *[8]uint64)

//go:linkname quantum runtime.heddleGetQuantum
func quantum() int64

//go:linkname setQuantum runtime.heddleSetQuantum
func setQuantum(ns int64) bool

//go:linkname mark runtime.heddleMark
func mark(class uint8)
