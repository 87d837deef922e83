package runtime

import (
	"internal/runtime/atomic"
	"internal/runtime/syscall/linux"
	"unsafe"
)

// heddleOver reports whether the goroutine on pp must be preempted now. sysmon calls it at each
// pass for a P whose slice has not ended since the last one.
func heddleOver(pp *p, pd *sysmontick, now int64) bool {
	ran := now - pd.schedwhen
	if ran < forcePreemptNS && heddleHasTimer(pp) {
		return false
	}
	waits := !heddle.skip || heddleWaits(pp, now, true)
	heddleNoteLong(pp, &pd.heddleCPU, now, ran, waits)
	return heddleDue(pp, ran, waits)
}

// heddleDue reports whether the goroutine on pp, which has run for ran ns, must be preempted.
// waits: a new goroutine waits for pp.
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

// heddleStart estimates when a slice on pp began that sysmon now sees for the first time: half way
// between its last pass and this one.
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

// heddleQuantum returns the quantum of the goroutine on pp, 0 if it has none.
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

// heddleRuns returns the goroutine on pp. It may have changed by the time the caller uses it,
// which is merely unfair: goroutines and threads are never freed.
func heddleRuns(pp *p) *g {
	mp := pp.m.ptr()
	if mp == nil {
		return nil
	}
	return mp.curg
}

// heddleHolds reports whether the goroutine on pp holds a lock. That defers a preemption for a
// while, not indefinitely: a goroutine that locks again and again is almost always seen with a
// lock.
func heddleHolds(pp *p) bool {
	gp := heddleRuns(pp)
	return gp != nil && gp.heddleHolds > 0
}

// heddleWaits reports whether a new goroutine waits for pp. The goroutine in runnext counts only
// if the same one still runs: two that wake each other up alternate without a preemption.
// Fractional workers of the garbage collector and the trace reader are not reported to the
// scheduler: R2 covers them.
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

// heddleKeep continues gp instead of preempting it if it has taken a lock since sysmon's check
// (heddleHolds). It does not delay a pending stop of the world or a request to run on each P; if
// one of these starts just now, its preemption is lost here, and both ask again every 100us.
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

// heddleIsSampled reports whether the profiler's signal is pending behind the calling signal
// handler. A preemption here would move the goroutine to the first instruction of asyncPreempt,
// and profiles would show that instead: both signals often come with one interrupt of the kernel's
// clock. The preemption is requested again.
func heddleIsSampled() bool {
	if !heddle.on || sched.profilehz == 0 {
		return false
	}
	var pending uint64
	linux.Syscall6(heddleRtSigpending, uintptr(unsafe.Pointer(&pending)), unsafe.Sizeof(pending), 0, 0, 0, 0)
	return pending&(1<<(_SIGPROF-1)) != 0
}

// heddleForget clears what an exiting goroutine would leave to the next one that reuses its g.
func heddleForget(gp *g) {
	gp.heddleHolds = 0
	gp.heddleClass = heddleNormal
}

// HeddleHold counts a lock that the calling goroutine holds or waits for. Between taking an
// uncontended Mutex and this the lock does not protect its holder. For package sync only; exported
// because otherwise it is not inlined there.
//
//go:nosplit
func HeddleHold() {
	getg().heddleHolds++
}

// HeddleDrop undoes HeddleHold. A lock may be released by a goroutine other than the one that took
// it. Then the taker's count stays too high, which the guard's time bounds, and the releaser's is
// too low, so that its own lock does not protect it. Both are rare, and a check here would cost
// every Unlock of every program.
//
//go:nosplit
func HeddleDrop() {
	getg().heddleHolds--
}
