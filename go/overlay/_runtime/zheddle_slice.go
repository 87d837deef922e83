package runtime

// What Heddle's threads ask of the kernel's scheduler. The kernel hands it on to
// new threads, children and what exec starts, so it is taken back before another
// program runs.

import (
	"internal/runtime/syscall/linux"
	"unsafe"
)

const (
	// Slices that threads ask the kernel for.
	heddleMonitorSlice = 100 * 1000
	heddleThreadSlice  = 500 * 1000
	// heddleMonitorSlack is sysmon's timer slack. A thread that sysmon starts has
	// the same.
	heddleMonitorSlack = 1

	heddleSetTimerslack = 29
	heddleGetTimerslack = 30
)

// heddleOriginal is what the program was started with, in ns.
var heddleOriginal struct {
	slice uint64 // 0: the kernel's default
	slack uintptr
}

// heddleSchedAttr is struct sched_attr in its first version.
type heddleSchedAttr struct {
	size, policy              uint32
	flags                     uint64
	nice                      int32
	priority                  uint32
	runtime, deadline, period uint64
}

// heddleGetAttr reads the calling thread's attributes and reports whether it is
// of the ordinary class (SCHED_OTHER), the only one that is given other slices.
//
//go:nosplit
func heddleGetAttr(attr *heddleSchedAttr) bool {
	const schedOther = 0
	_, _, errno := linux.Syscall6(heddleSchedGetattr, 0, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr), 0, 0, 0)
	return errno == 0 && attr.policy == schedOther
}

// heddleSlice asks for another slice for the calling thread than the kernel's
// own of some milliseconds (Linux 6.12); 0 asks for that one. A thread that wakes
// up then does not wait for the end of another's longer slice. Its share of the
// CPU stays.
func heddleSlice(ns uint64) {
	var attr heddleSchedAttr
	if heddleGetAttr(&attr) {
		attr.runtime = ns
		linux.Syscall6(heddleSchedSetattr, 0, uintptr(unsafe.Pointer(&attr)), 0, 0, 0, 0)
	}
}

// heddleRemember notes what the program was started with, before anything is
// changed. The kernel does not tell its default from a slice of the same length
// that was asked for, so the default is asked for to see whether that changes it.
func heddleRemember() {
	heddleOriginal.slack, _, _ = linux.Syscall6(heddlePrctl, heddleGetTimerslack, 0, 0, 0, 0, 0)
	var first, second heddleSchedAttr
	if !heddleGetAttr(&first) {
		return
	}
	heddleSlice(0)
	if heddleGetAttr(&second) && second.runtime != first.runtime {
		heddleOriginal.slice = first.runtime
		heddleSlice(first.runtime)
	}
}

// heddleRestore gives the calling thread back what the program was started with.
// What others have set stays. Also called in a child that shares the memory of
// its parent, so it changes none.
//
//go:nosplit
func heddleRestore() {
	if !heddle.on {
		return
	}
	slack, _, _ := linux.Syscall6(heddlePrctl, heddleGetTimerslack, 0, 0, 0, 0, 0)
	if slack == heddleMonitorSlack {
		linux.Syscall6(heddlePrctl, heddleSetTimerslack, heddleOriginal.slack, 0, 0, 0, 0)
	}
	var attr heddleSchedAttr
	if heddleGetAttr(&attr) && (attr.runtime == heddleThreadSlice || attr.runtime == heddleMonitorSlice) {
		attr.runtime = heddleOriginal.slice
		linux.Syscall6(heddleSchedSetattr, 0, uintptr(unsafe.Pointer(&attr)), 0, 0, 0, 0)
	}
}

// heddleBeforeExec is called before the program becomes another one. The goroutine
// stays on this thread until then, or until heddleAfterExec.
func heddleBeforeExec() {
	lockOSThread()
	heddleRestore()
}

// heddleAfterExec is called if it has not become another one.
func heddleAfterExec() {
	if getg().m.heddle.exists {
		heddleSlice(heddleThreadSlice)
	}
	unlockOSThread()
}
