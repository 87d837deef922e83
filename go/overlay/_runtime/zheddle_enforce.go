package runtime

import (
	"internal/runtime/syscall/linux"
	"unsafe"
)

// When quanta are enforced. Seeing that a quantum has expired takes an interrupt per quantum,
// whether or not the same goroutine still runs: 25us of CPU time on a virtual machine. A program
// whose goroutines all yield sooner needs none of them. So the scheduler starts relaxed and costs
// what the stock one costs: sysmon samples what runs, and preempts a goroutine that it finds
// beyond its quantum while another one waits. Once it has found several of these, it enforces
// every quantum until they have become rare.
//
//	relaxed   --heddleEnter long slices in a period, a batch goroutine-->  enforcing
//	enforcing --fewer than heddleStay of them in a period--------------->  relaxed
//
// Without sysmon=timer the scheduler always enforces.

const (
	heddlePeriod = 1000 * 1000 * 1000
	// heddleEnter and heddleStay are about one per cent of a relaxed sysmon's passes, and of the
	// long slices that these sample.
	heddleEnter = 8
	heddleStay  = 16
	// heddleRelaxedPause is sysmon's longest pause while the scheduler is relaxed and a P is busy.
	// A slice counts as long if the next pass sees it too, so that pass comes a quantum later if a
	// goroutine waits.
	heddleRelaxedPause = 2000 * 1000
	// heddleCounted marks the CPU time of a slice that has been counted.
	heddleCounted = 1<<63 - 1
)

// heddleEnforce enforces quanta for at least one period.
func heddleEnforce(now int64) {
	heddle.periodEnd.Store(now + heddlePeriod)
	heddle.found.Store(0)
	heddle.enforcing.Store(true)
}

// heddleIsRelaxed reports whether the scheduler is relaxed. Only sysmon calls it; it also ends
// periods.
func heddleIsRelaxed(now int64) bool {
	if heddle.isAdaptive && now >= heddle.periodEnd.Load() {
		if heddle.found.Load() < heddleStay {
			heddle.enforcing.Store(false)
		}
		heddle.found.Store(0)
		heddle.periodEnd.Store(now + heddlePeriod)
	}
	return !heddle.enforcing.Load()
}

// heddleNoteLong counts a slice on pp if it is long: it has lasted for ran and a goroutine waits.
// cpu is the CPU time that its thread had used when the slice was first seen: the thread must have
// computed since, because another program may have had the CPU. The garbage collector's slices say
// nothing about the program's.
func heddleNoteLong(pp *p, cpu *int64, now, ran int64, waits bool) {
	quantum := heddle.quantum.Load()
	if quantum == 0 {
		quantum = heddle.netpoll
	}
	mp := pp.m.ptr()
	if !heddle.isAdaptive || !waits || ran < quantum || mp == nil || pp.gcMarkWorkerMode != gcMarkWorkerNotWorker {
		return
	}
	isRelaxed := !heddle.enforcing.Load()
	least := quantum / 8 * 3 // a tick comes half a quantum after the first one that sees the slice
	if isRelaxed {
		least *= 2
	}
	used := heddleCPUTime(mp) - *cpu
	if used < least || used > ran { // more than ran: another thread's
		return
	}
	*cpu = heddleCounted
	if isRelaxed {
		heddleFindRelaxed(now)
	} else {
		heddle.found.Add(1)
	}
}

// heddleFindRelaxed counts a long slice that sysmon found while the scheduler is relaxed. Those
// found while sysmon runs more often count once per heddleRelaxedPause.
func heddleFindRelaxed(now int64) {
	if now-heddle.foundAt < heddleRelaxedPause {
		return
	}
	heddle.foundAt = now
	if heddle.found.Add(1) == heddleEnter {
		heddleEnforce(now)
	}
}

// heddleQueueTime returns the time at which a goroutine enters or leaves the preempted section.
// While the scheduler is relaxed it is the time of sysmon's last pass, which decides which
// goroutines have waited for too long: reading the clock twice would make Gosched half as
// expensive again.
func heddleQueueTime() int64 {
	isExact := heddle.enforcing.Load() || heddle.maxWait < forcePreemptNS || sched.sysmonwait.Load()
	if at := heddle.lookedAt.Load(); at != 0 && !isExact {
		return at
	}
	return nanotime()
}

// heddleCPUTime returns the CPU time of mp's thread in ns; 0 if the thread does not exist.
func heddleCPUTime(mp *m) int64 {
	const perThread, scheduled = 4, 2 // parts of the kernel's id of a thread's clock
	clock := ^uintptr(mp.procid)<<3 | perThread | scheduled
	var ts timespec
	linux.Syscall6(heddleClockGettime, clock, uintptr(unsafe.Pointer(&ts)), 0, 0, 0, 0)
	return ts.tv_sec*1000*1000*1000 + ts.tv_nsec
}
