package runtime

import (
	"internal/runtime/syscall/linux"
	"unsafe"
)

// When quanta are enforced. To see that a quantum is over takes an interrupt per
// quantum, whether or not the same goroutine still runs: 25us of CPU time on a
// virtual machine. A program whose goroutines all give way sooner needs none of
// them. So the scheduler is relaxed at first, and costs what the stock one costs:
// sysmon samples what runs, and preempts a goroutine that it finds beyond its
// quantum while another one waits. Once it has found several of these it enforces
// every quantum, until they have become rare.
//
//	relaxed   --heddleEnter long slices in a period, a batch goroutine-->  enforcing
//	enforcing --fewer than heddleStay of them in a period--------------->  relaxed
//
// Without sysmon=timer the scheduler always enforces.

const (
	heddlePeriod = 1000 * 1000 * 1000
	// heddleEnter and heddleStay are about one per cent of a relaxed sysmon's
	// looks, and as many long slices as these are a sample of.
	heddleEnter = 8
	heddleStay  = 16
	// heddleRelaxedPause is sysmon's longest pause while the scheduler is relaxed
	// and a P is busy. A slice is long if the next look sees it too, so that comes
	// a quantum later if somebody waits.
	heddleRelaxedPause = 2000 * 1000
	// heddleCounted is the CPU time of a slice that has been counted.
	heddleCounted = 1<<63 - 1
)

// heddleEnforce enforces quanta for a period at least.
func heddleEnforce(now int64) {
	heddle.periodEnd.Store(now + heddlePeriod)
	heddle.found.Store(0)
	heddle.enforcing.Store(true)
}

// heddleIsRelaxed reports whether the scheduler is relaxed. Only sysmon asks, and
// so ends periods.
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

// heddleNoteLong counts a slice on pp, if it is long: it has lasted for ran and
// somebody waits. cpu is the CPU time that its thread had used at the first look
// at it: the thread must have computed since, for another program may have had
// the CPU. The garbage collector's slices say nothing about the program's.
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
	if used < least || used > ran { // more than ran: of another thread
		return
	}
	*cpu = heddleCounted
	if isRelaxed {
		heddleFindRelaxed(now)
	} else {
		heddle.found.Add(1)
	}
}

// heddleFindRelaxed counts a long slice that sysmon has found while the scheduler
// is relaxed. Those that it finds while it looks more often count once in
// heddleRelaxedPause.
func heddleFindRelaxed(now int64) {
	if now-heddle.foundAt < heddleRelaxedPause {
		return
	}
	heddle.foundAt = now
	if heddle.found.Add(1) == heddleEnter {
		heddleEnforce(now)
	}
}

// heddleQueueTime is the time at which a goroutine is put into the section of
// preempted ones or taken from it. While the scheduler is relaxed it is that of
// sysmon's last look, which decides who has waited for too long: to ask the clock
// twice would make Gosched half as dear again.
func heddleQueueTime() int64 {
	isExact := heddle.enforcing.Load() || heddle.maxWait < forcePreemptNS || sched.sysmonwait.Load()
	if at := heddle.lookedAt.Load(); at != 0 && !isExact {
		return at
	}
	return nanotime()
}

// heddleCPUTime is the CPU time that mp's thread has used, in ns; 0 if the thread
// does not exist.
func heddleCPUTime(mp *m) int64 {
	const perThread, scheduled = 4, 2 // parts of the kernel's number of a thread's clock
	clock := ^uintptr(mp.procid)<<3 | perThread | scheduled
	var ts timespec
	linux.Syscall6(heddleClockGettime, clock, uintptr(unsafe.Pointer(&ts)), 0, 0, 0, 0)
	return ts.tv_sec*1000*1000*1000 + ts.tv_nsec
}
