package runtime

import (
	"internal/runtime/atomic"
	"internal/runtime/syscall/linux"
	"unsafe"
)

// heddleOver reports whether the goroutine on pp is to be preempted now. sysmon
// asks at each of its looks at a P whose slice has not ended since the last.
func heddleOver(pp *p, pd *sysmontick, now int64) bool {
	ran := now - pd.schedwhen
	if ran < forcePreemptNS && heddleHasTimer(pp) {
		return false
	}
	waits := !heddle.skip || heddleWaits(pp, now, true)
	heddleNoteLong(pp, &pd.heddleCPU, now, ran, waits)
	return heddleDue(pp, ran, waits)
}

// heddleDue reports whether the goroutine on pp, which ran for so long, is to be
// preempted, if somebody new waits or nobody.
func heddleDue(pp *p, ran int64, waits bool) bool {
	if ran >= forcePreemptNS {
		heddle.counts.forced.Add(1)
		return true
	}
	quantum := heddleQuantum(pp)
	if quantum == 0 || ran < quantum {
		return false
	}
	if ran < quantum+heddle.guard && heddleHolds(pp) {
		heddle.counts.held.Add(1)
		return false
	}
	if waits || atomic.Loadint32(&heddle.preempted) != 0 && ran >= heddle.long {
		return true
	}
	heddle.counts.skips.Add(1)
	return false
}

// heddleStart is when a slice on pp began that sysmon now sees for the first
// time: half way between its last look and this one.
func heddleStart(pp *p, now int64) int64 {
	if !heddle.on {
		return now
	}
	if mp := pp.m.ptr(); heddle.isAdaptive && mp != nil {
		pp.sysmontick.heddleCPU = heddleCPUTime(mp)
		heddle.isNew = heddle.isNew || heddleWaits(pp, now, true)
	}
	return now - min(now-heddle.lookedAt.Load(), heddle.quantum.Load())/2
}

// heddleQuantum is the quantum of whoever runs on pp, 0 if it has none.
func heddleQuantum(pp *p) int64 {
	quantum := heddle.quantum.Load()
	gp := heddleRuns(pp)
	switch {
	case gp == nil || quantum == 0:
		return quantum
	case gp.heddleClass == heddleLatencyCritical:
		return 0
	case gp.heddleClass == heddleBatch:
		return 1
	}
	return quantum
}

// heddleRuns is the goroutine on pp. It may be another one by the time that
// the caller looks at it, which is no more than unfair: goroutines and threads
// are never freed.
func heddleRuns(pp *p) *g {
	mp := pp.m.ptr()
	if mp == nil {
		return nil
	}
	return mp.curg
}

// heddleHolds reports whether who runs on pp has a lock. That puts a preemption
// off for a while, not without end: a goroutine that locks again and again is
// hardly ever seen without.
func heddleHolds(pp *p) bool {
	gp := heddleRuns(pp)
	return gp != nil && gp.heddleHolds > 0
}

// heddleWaits reports whether somebody who is new waits for pp. Who is next by
// runnext waits only if the same goroutine runs as before: two that wake each
// other up take turns without it. Fractional workers of the garbage collector
// and the reader of a trace have nobody who tells of them: for these there is R2.
func heddleWaits(pp *p, now int64, isSameTurn bool) bool {
	head, tail := atomic.LoadAcq(&pp.runqhead), atomic.LoadAcq(&pp.runqtail)
	if head != tail || heddleHasNew() || heddle.aged.Load() {
		return true
	}
	if isSameTurn && pp.runnext != 0 {
		return true
	}
	when := pp.timers.wakeTime()
	return when != 0 && when <= now
}

// heddleKeep goes on with gp instead of preempting it, if it has taken a lock
// since sysmon looked (heddleHolds). Whoever waits for the world to stop, or for
// a P to come by, is not kept waiting; should one of these begin just now, its
// preemption is lost here: both ask again every 100us.
func heddleKeep(gp *g) {
	if gp.heddleHolds <= 0 || heddle.guard == 0 || heddle.quantum.Load() == 0 {
		return
	}
	pp := gp.m.p.ptr()
	schedtick, since := pp.sysmontick.schedtick, pp.sysmontick.schedwhen
	if t := &gp.m.heddle; t.state == heddleArmed {
		schedtick, since = t.schedtick, t.since
	}
	isOver := schedtick == pp.schedtick && nanotime()-since >= heddle.quantum.Load()+heddle.guard
	if isOver || sched.gcwaiting.Load() || pp.runSafePointFn != 0 {
		return
	}
	heddle.counts.held.Add(1)
	gp.preempt = false
	gp.stackguard0 = gp.stack.lo + stackGuard
	gogo(&gp.sched)
}

// heddleIsSampled reports whether the profiler's signal waits for the end of the
// calling signal handler. It would find the goroutine at the first instruction of
// asyncPreempt if that were preempted here, and profiles would show that in its
// place: both signals often come with one interrupt of the kernel's clock.
// Whoever wants the preemption asks again.
func heddleIsSampled() bool {
	if !heddle.on || sched.profilehz == 0 {
		return false
	}
	var pending uint64
	linux.Syscall6(heddleRtSigpending, uintptr(unsafe.Pointer(&pending)), unsafe.Sizeof(pending), 0, 0, 0, 0)
	return pending&(1<<(_SIGPROF-1)) != 0
}

// heddleForget clears what a goroutine that ends leaves to the next one that
// is made from it.
func heddleForget(gp *g) {
	gp.heddleHolds = 0
	gp.heddleClass = heddleNormal
}

// HeddleHold counts a lock that the calling goroutine has or is about to have.
// For package sync alone; exported since only then it is inlined there.
//
//go:nosplit
func HeddleHold() {
	getg().heddleHolds++
}

// HeddleDrop is the contrary of HeddleHold. A lock may be given back by another
// goroutine than the one that took it. Then the one's count stays too high,
// which the guard's time bounds, and the other's too low, so that a lock of its
// own does not protect it; both are rare, and a test here would cost every
// Unlock of every program.
//
//go:nosplit
func HeddleDrop() {
	getg().heddleHolds--
}
