package runtime

// What Heddle's threads request from the kernel's scheduler. New threads, children and exec
// inherit it, so it is undone before another program runs.

import (
	"internal/runtime/syscall/linux"
	"unsafe"
)

const (
	// Slices requested for threads, in ns.
	heddleMonitorSlice = 100 * 1000
	heddleThreadSlice  = 500 * 1000
	// heddleMonitorSlack is sysmon's timer slack, in ns. Threads that sysmon starts inherit it.
	heddleMonitorSlack = 1

	heddleSetTimerslack = 29
	heddleGetTimerslack = 30
)

// heddleOriginal is what the program was started with, in ns.
var heddleOriginal struct {
	slice uint64 // 0: the kernel's default
	slack uintptr
}

// heddleSchedAttr is struct sched_attr, first version.
type heddleSchedAttr struct {
	size, policy              uint32
	flags                     uint64
	nice                      int32
	priority                  uint32
	runtime, deadline, period uint64
}

// heddleGetAttr reads the calling thread's attributes and reports whether its policy is
// SCHED_OTHER, the only one whose slice is changed.
//
//go:nosplit
func heddleGetAttr(attr *heddleSchedAttr) bool {
	const schedOther = 0
	_, _, errno := linux.Syscall6(heddleSchedGetattr, 0, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr), 0, 0, 0)
	return errno == 0 && attr.policy == schedOther
}

// heddleSlice requests a slice for the calling thread, in ns, instead of the kernel's default of
// some milliseconds (Linux 6.12); 0 restores the default. A thread that wakes up then need not
// wait for the end of another thread's longer slice. Its share of the CPU is unchanged.
func heddleSlice(ns uint64) {
	var attr heddleSchedAttr
	if heddleGetAttr(&attr) {
		attr.runtime = ns
		linux.Syscall6(heddleSchedSetattr, 0, uintptr(unsafe.Pointer(&attr)), 0, 0, 0, 0)
	}
}

// heddleRemember records what the program was started with, before anything is changed. The kernel
// does not distinguish its default from an equal slice that was requested, so the default is
// requested to see whether that changes the slice.
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

// heddleRestore restores the calling thread's original slice and slack. Values set by others stay.
// Also called in a child that shares its parent's memory, so it writes none.
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

// heddleBeforeExec is called before exec. The goroutine stays on this thread until then, or until
// heddleAfterExec.
func heddleBeforeExec() {
	lockOSThread()
	heddleRestore()
}

// heddleAfterExec is called if exec failed.
func heddleAfterExec() {
	if getg().m.heddle.exists {
		heddleSlice(heddleThreadSlice)
	}
	unlockOSThread()
}
