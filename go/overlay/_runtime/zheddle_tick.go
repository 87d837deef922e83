package runtime

import "internal/runtime/atomic"

// A timer per thread that runs goroutines, which interrupts the thread itself: unlike sysmon, it
// needs no CPU of its own to preempt a goroutine in time. sysmon handles only the Ps whose thread
// has no running timer: heddle.mode says whether there are timers at all, heddle.enforcing whether
// they run now.

const (
	heddleUnarmed uint8 = iota // arm it as soon as a goroutine runs and quanta are enforced
	heddleLeft                 // C was called here: stays off for heddleTurnsAfterC
	heddleArmed
	heddleNever // this thread has none
)

const (
	// heddleRest is how long a tick is deferred if no goroutine waits and new work on this thread
	// is reported; the stock rule checks as often.
	heddleRest = forcePreemptNS
	// heddleTickCalm is how many consecutive ticks must have been useless before the next one is
	// deferred. New work on this thread brings it forward.
	heddleTickCalm = 4
	// heddleMuted is for how many ticks of heddleMostPause a thread's timer ignores new work after
	// it was brought forward needlessly: two goroutines that wake each other up would do that all
	// the time.
	heddleMuted = 16
	// heddleTurnsAfterC is how many goroutines must have run on a thread since it last called C
	// before its timer is armed again. Arming and disarming takes 10us, a call of C 50ns.
	heddleTurnsAfterC = 64
)

// heddleTicker is a thread's timer state. Written only by the thread and its signal handler;
// others read state.
type heddleTicker struct {
	timer       int32 // the kernel's id, valid if exists
	exists      bool
	state       uint8
	resting     bool   // the next tick is deferred: bring it forward if there is new work
	isEarly     bool   // the tick was brought forward and has not come yet
	isNetDue    bool   // poll the network before the next goroutine runs
	calm        int8   // consecutive useless ticks
	muted       int8   // ticks for which new work is still ignored
	syscalltick uint32 // of m at the last tick
	schedtick   uint32 // of the P at the last tick
	turns       uint32 // goroutines that have run here
	lastTurn    uint32 // turns at the last tick
	lastC       uint32 // turns when it last called C
	cpu         int64  // the thread's CPU time when a tick first saw the slice
	since       int64  // when the slice began
	lookedAt    int64  // the last tick
	polledAt    int64  // the last poll of the network
}

// heddleTurn is called when a goroutine starts to run on mp.
func heddleTurn(mp *m) {
	t := &mp.heddle
	t.turns++
	if t.state < heddleArmed && heddle.enforcing.Load() &&
		(t.state != heddleLeft || t.turns-t.lastC >= heddleTurnsAfterC) {
		heddleArm()
	}
}

// heddleBack is called when a goroutine returns from a system call, on its own stack, which must
// not grow now.
//
//go:nosplit
func heddleBack() {
	if getg().m.heddle.state == heddleUnarmed && heddle.enforcing.Load() {
		systemstack(heddleArm)
	}
}

// heddleArm starts the timer of the calling thread. A thread that belongs to C gets none: its m is
// not always on the same thread.
func heddleArm() {
	mp := getg().m
	t := &mp.heddle
	quantum := heddle.quantum.Load()
	if heddle.mode != heddleTimer || mp.isextra || !t.exists && !heddleCreate(mp) {
		t.state = heddleNever
		return
	}
	if quantum != 0 {
		t.state = heddleArmed
		t.lookedAt = nanotime()
		heddleSet(t, quantum)
	}
}

// heddleCreate creates the timer. It fails at RLIMIT_SIGPENDING.
func heddleCreate(mp *m) bool {
	var event sigevent
	event.notify = _SIGEV_THREAD_ID
	event.signo = sigPreempt
	event.sigev_notify_thread_id = int32(mp.procid)
	const clockMonotonic = 1
	heddleSlice(heddleThreadSlice)
	mp.heddle.exists = timer_create(clockMonotonic, &event, &mp.heddle.timer) == 0
	return mp.heddle.exists
}

// heddleSet arms the timer to fire in ns, 0 disarms it.
//
//go:nosplit
func heddleSet(t *heddleTicker, ns int64) {
	var spec itimerspec
	spec.it_value.setNsec(ns)
	heddle.counts.timerCalls.Add(1)
	timer_settime(t.timer, 0, &spec, nil)
}

// heddleLeave stops the timer before the calling thread runs C, whose system calls it would
// interrupt: C code is seldom prepared for that. sysmon handles the thread's P until C has not
// been called there for a while. The caller must not change threads here, so this checks no stack.
//
//go:nosplit
func heddleLeave() {
	t := &getg().m.heddle
	t.lastC = t.turns
	if t.state == heddleArmed {
		systemstack(heddleDisarm)
	}
}

func heddleDisarm() {
	heddleStop(&getg().m.heddle, heddleLeft)
	heddleHandOver()
}

// heddleIdle stops the timer of a thread that releases its P for lack of work.
func heddleIdle() {
	if t := &getg().m.heddle; t.state == heddleArmed {
		heddleStop(t, heddleUnarmed)
	}
}

// heddleStop stops the timer and sets its state.
func heddleStop(t *heddleTicker, state uint8) {
	t.state = state
	t.resting = false
	heddleSet(t, 0)
}

// heddleExit deletes the timer of the exiting mp, whose signals are blocked.
func heddleExit(mp *m) {
	if mp.heddle.exists {
		timer_delete(mp.heddle.timer)
	}
	mp.heddle.exists = false
	mp.heddle.state = heddleNever
}

// heddleHasTimer reports whether the thread that runs pp detects expired quanta itself.
func heddleHasTimer(pp *p) bool {
	mp := pp.m.ptr()
	return mp != nil && mp.heddle.state == heddleArmed
}

// heddleTick handles a tick of the calling thread's timer, in its signal handler. Reports whether
// its goroutine must be preempted.
//
//go:nowritebarrierrec
func heddleTick() bool {
	mp := getg().m
	t := &mp.heddle
	pp, gp := mp.p.ptr(), mp.curg
	quantum := heddle.quantum.Load()
	isInCall := gp != nil && readgstatus(gp)&^_Gscan == _Gsyscall
	isSameCall := t.syscalltick == mp.syscalltick
	t.syscalltick = mp.syscalltick
	heddle.counts.ticks.Add(1)
	switch {
	case t.state != heddleArmed:
		return false
	case isInCall && isSameCall, !isInCall && pp == nil, quantum == 0, !heddle.enforcing.Load():
		// Blocked in a system call, which must not be interrupted again; idle; or relaxed.
		t.state = heddleUnarmed
		t.resting = false
		if isInCall {
			heddleHandOver()
		}
		return false
	case isInCall, gp == nil:
		heddleSet(t, quantum)
		return false
	}
	return heddleLook(mp, pp, gp, nanotime())
}

// heddleLook handles a tick while gp runs on pp. Reports whether gp must be preempted.
func heddleLook(mp *m, pp *p, gp *g, now int64) bool {
	t := &mp.heddle
	heddleAge(now)
	if pp.schedtick != t.schedtick {
		t.schedtick = pp.schedtick
		t.since = now - min(now-t.lookedAt, heddle.quantum.Load())/2
		t.cpu = heddleCPUTime(mp)
	}
	isSameTurn := t.turns == t.lastTurn
	t.lastTurn = t.turns
	t.lookedAt = now
	isWatched := netpollinited() && netpollAnyWaiters() && sched.lastpoll.Load() != 0
	if isWatched && now-t.polledAt >= heddle.netpoll/2 {
		t.polledAt = now
		t.isNetDue = heddlePoll(0)
	}
	ran := now - t.since
	waits := !heddle.skip || t.isNetDue || heddleWaits(pp, now, isSameTurn)
	heddleNoteLong(pp, &t.cpu, now, ran, waits)
	isDue := heddleDue(pp, ran, waits)
	if isDue {
		gp.preempt = true
		gp.stackguard0 = stackPreempt
		pp.preempt = true
	}
	heddleSet(t, heddleNextTick(t, pp, now, ran, waits, isWatched, isDue))
	return isDue
}

// heddleNextTick returns the time until the next tick, in ns.
func heddleNextTick(t *heddleTicker, pp *p, now, ran int64, waits, isWatched, isDue bool) int64 {
	quantum := heddle.quantum.Load()
	wasEarly := t.isEarly
	t.isEarly = false
	switch {
	case waits || isWatched:
		t.calm = 0
		if !isDue && (ran < quantum || waits) { // or a lock is held
			return max(quantum-ran, heddleLeastPause)
		}
		return quantum
	case t.calm < heddleTickCalm:
		t.calm++
		return quantum
	}
	if wasEarly {
		t.muted = heddleMuted
	}
	next := int64(heddleRest)
	if t.muted > 0 {
		t.muted--
		next = heddleMostPause
	}
	if isDue {
		ran = 0 // of the next goroutine
	}
	if oldest := atomic.Loadint64(&heddle.oldest); oldest != 0 {
		next = min(next, heddle.long-ran)
		if heddle.maxWait != 0 {
			next = min(next, oldest+heddle.maxWait-now)
		}
	}
	if when := pp.timers.wakeTime(); when != 0 {
		next = min(next, max(when-now, quantum-ran))
	}
	t.resting = next > heddleMostPause
	return max(next, heddleLeastPause)
}

// heddleWakeTimer brings the deferred tick of the calling thread forward: it has made a goroutine
// runnable.
func heddleWakeTimer(t *heddleTicker) {
	t.resting = false
	t.isEarly = true
	heddleSet(t, heddle.quantum.Load())
}

// heddleServeNet makes the goroutines runnable that the network has something for, if the last
// tick found any.
func heddleServeNet() {
	t := &getg().m.heddle
	if !t.isNetDue {
		return
	}
	t.isNetDue = false
	list, delta := netpoll(0)
	if !list.empty() {
		injectglist(&list)
		netpollAdjustWaiters(delta)
	}
}
