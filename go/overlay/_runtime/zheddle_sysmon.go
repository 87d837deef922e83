package runtime

import (
	"internal/runtime/atomic"
	"internal/runtime/syscall/linux"
	"unsafe"
)

const (
	// heddleLeastPause is sysmon's shortest pause. A thread that wakes up soon after it has run
	// has had more than its share of the CPU in the kernel's eyes (EEVDF), and if a goroutine
	// computes on that CPU, it then waits for the kernel's next tick, up to 4 ms: with the stock
	// runtime's 20us here, every second preemption came too late.
	heddleLeastPause = 50 * 1000
	// heddleCalm is how many consecutive passes must have been needless before sysmon sleeps for
	// longer than a quantum. The thread that makes work then pays for waking it, so this bounds
	// how often that happens.
	heddleCalm = 16
	// heddleMostPause is its longest pause.
	heddleMostPause = 1000 * 1000
	// heddleNudge is its pause if all busy threads have timers but the network may have something.
	// The point is not what it sees: each wakeup makes the kernel choose again between another
	// program and a thread of ours that waits for that CPU, which otherwise happens only at the
	// next tick.
	heddleNudge = 200 * 1000
	// heddleLinger is how long all Ps must have been idle before sysmon sleeps as deeply as in the
	// stock runtime. It is woken from that under sched.lock, which it then needs itself: so it
	// yields, and does not get the CPU back before the kernel's next tick.
	heddleLinger = 1000 * 1000 * 1000
)

// heddlePause is sysmon's sleep between two passes.
func heddlePause(delay uint32) {
	if !heddle.on {
		usleep(delay)
		return
	}
	if !heddle.isPrecise {
		heddle.isPrecise = true
		heddleSharpen()
	}
	now := nanotime()
	heddle.lookedAt.Store(now)
	heddleAge(now)
	if heddleIsRelaxed(now) {
		usleep(heddleRelaxedDelay(delay))
		return
	}
	heddle.sysmonState.Store(heddleOffDuty)
	until, isOver, isNeeded := heddleNext(now)
	if !isNeeded {
		heddle.calm = 0
		rest := int64(heddleRest)
		if isOver {
			rest = heddleNudge
		}
		heddleWait(now, now+rest, false, heddleOffDuty)
		heddle.sysmonState.Store(heddleAwake)
		return
	}
	heddle.sysmonState.Store(heddleSleeping)
	quantum := heddle.quantum.Load()
	switch heddle.calm++; {
	case quantum == 0 || until-now <= quantum:
		heddle.calm = 0
	case heddle.calm < heddleCalm:
		until = now + quantum
	}
	if heddle.calm < heddleCalm {
		heddle.sysmonState.Store(heddleAwake)
	}
	heddleWait(now, max(until, now+heddleLeastPause), isOver, heddle.sysmonState.Load())
	if heddle.calm >= heddleCalm && heddle.sysmonState.Load() == heddleAwake {
		heddle.calm = 0 // it was woken: more work may follow soon
	}
	heddle.sysmonState.Store(heddleAwake)
}

// heddleRelaxedDelay returns sysmon's sleep in us while the scheduler is relaxed. delay is the
// stock runtime's.
func heddleRelaxedDelay(delay uint32) uint32 {
	isSecond := heddle.isNew && !heddle.isSecond
	heddle.isNew, heddle.isSecond = false, isSecond
	quantum := heddle.quantum.Load()
	switch {
	case isSecond && quantum != 0:
		return min(delay, uint32(max(quantum, heddleLeastPause)/1000))
	case sched.npidle.Load() == gomaxprocs:
		return delay
	}
	return min(delay, heddleRelaxedPause/1000)
}

// heddleSharpen makes the calling thread, sysmon's, wake up on time. Its timers get no slack,
// otherwise Linux adds 50us to each, and it requests a short slice. Still, if a goroutine computes
// on the CPU that it wakes up on, it waits for the kernel's next tick, up to 4 ms, whenever the
// computing thread is behind its share (EEVDF): so preemption does not depend on it
// (zheddle_tick.go).
func heddleSharpen() {
	linux.Syscall6(heddlePrctl, heddleSetTimerslack, heddleMonitorSlack, 0, 0, 0, 0)
	heddleSlice(heddleMonitorSlice)
}

// heddleWait waits until the given time, or until sysmon is woken from a state other than
// heddleAwake.
func heddleWait(now, until int64, isOver bool, state uint32) {
	switch {
	case heddle.mode == heddleSpin:
		for nanotime() < until && heddle.sysmonState.Load() == state {
			procyield(30)
		}
	case heddle.mode >= heddleEvent && isOver:
		heddle.polled = heddlePoll(until - now) // sysmonState is heddleAwake then
	default:
		wakeups := atomic.Load(&heddle.wakeups)
		if heddle.sysmonState.Load() == state {
			futexsleep(&heddle.wakeups, wakeups, until-now)
		}
	}
}

// heddleNotify reports a new runnable goroutine to whatever sleeps for longer than a quantum:
// sysmon, and the calling thread's timer. The caller must hold no lock that sysmon takes.
func heddleNotify() {
	if heddle.sysmonState.Load() == heddleSleeping {
		heddleWakeSysmon(heddleSleeping)
	}
	if t := &getg().m.heddle; t.resting {
		heddleWakeTimer(t)
	}
}

// heddleHandOver makes sysmon responsible for a P whose thread's timer has stopped.
func heddleHandOver() {
	if heddle.sysmonState.Load() == heddleOffDuty {
		heddleWakeSysmon(heddleOffDuty)
	}
}

func heddleWakeSysmon(state uint32) {
	if heddle.sysmonState.CompareAndSwap(state, heddleAwake) {
		atomic.Xadd(&heddle.wakeups, 1)
		futexwakeup(&heddle.wakeups, 1)
	}
}

// heddleMayRest reports whether sysmon may sleep deeply if all Ps are idle.
func heddleMayRest() bool {
	return !heddle.enforcing.Load() || nanotime()-heddle.busyAt >= heddleLinger
}

// heddleAge updates whether a preempted goroutine has waited for too long.
func heddleAge(now int64) {
	oldest := atomic.Loadint64(&heddle.oldest)
	isAged := heddle.maxWait != 0 && oldest != 0 && now-oldest >= heddle.maxWait
	if isAged != heddle.aged.Load() {
		heddle.aged.Store(isAged)
	}
}

// heddleNext returns when sysmon must run next; whether a P is over its quantum while no goroutine
// waits for it, so that only the network can bring one that sysmon must see at once; and whether
// sysmon is responsible for any P at all.
func heddleNext(now int64) (next int64, isOver, isNeeded bool) {
	next = now + heddleMostPause
	isNeeded = heddle.mode != heddleTimer
	isBusy := false
	lock(&allpLock)
	for _, pp := range allp {
		if pp == nil {
			continue
		}
		if s := atomic.Load(&pp.status); s == _Pidle || s == _Pgcstop || s == _Pdead {
			continue
		}
		isBusy = true
		if heddleHasTimer(pp) {
			continue
		}
		isNeeded = true
		when, over := heddleNextOf(pp, now)
		next = min(next, when)
		isOver = isOver || over
	}
	unlock(&allpLock)
	if isBusy {
		heddle.busyAt = now
	}
	last := sched.lastpoll.Load()
	isPolled := last != 0 && netpollinited() && netpollAnyWaiters()
	isOver = (isOver || !isNeeded && isBusy) && isPolled
	if isPolled && (!isOver || heddle.mode < heddleEvent) {
		next = min(next, last+heddle.netpoll)
	}
	return next, isOver, isNeeded
}

// heddleNextOf is heddleNext for one P.
func heddleNextOf(pp *p, now int64) (next int64, isOver bool) {
	quantum := heddleQuantum(pp)
	if quantum == 0 {
		return now + heddleMostPause, false
	}
	start := now
	if pd := &pp.sysmontick; pd.schedtick == pp.schedtick {
		start = pd.schedwhen
	}
	switch {
	case !heddle.skip || heddleWaits(pp, now, true):
		return start + quantum, false
	case start+quantum > now && heddle.mode >= heddleEvent:
		return start + quantum, false
	case atomic.Loadint32(&heddle.preempted) != 0:
		next = max(start+max(heddle.long, quantum), now)
	default:
		next = now + heddleMostPause
	}
	if when := pp.timers.wakeTime(); when != 0 {
		next = min(next, max(when, start+quantum))
	}
	return next, start+quantum <= now
}

// heddleBrief reports whether a system call is too young to retake its P. Writing to a socket
// computes for tens of microseconds in the kernel: taking the P then adds a second thread beside
// one that still needs the CPU.
func heddleBrief(pd *sysmontick, now int64) bool {
	return heddle.on && now-pd.syscallwhen < heddle.quantum.Load()
}

// heddleNetpollInterval returns how long the network may go unpolled before sysmon polls it, in
// ns.
func heddleNetpollInterval() int64 {
	if heddle.polled {
		heddle.polled = false
		return 0
	}
	if heddle.isAdaptive && !heddle.enforcing.Load() {
		return max(heddle.netpoll, heddleRelaxedPause) / 2
	}
	if heddle.on {
		return heddle.netpoll / 2 // passes are about as far apart, and none may be missed
	}
	return heddle.netpoll
}

// heddlePoll waits for at most ns until the network has something, and reports whether it has. It
// takes nothing from the runtime's network poller.
func heddlePoll(ns int64) bool {
	type pollfd struct {
		fd      int32
		events  int16
		revents int16
	}
	const in = 1
	fds := pollfd{fd: epfd, events: in}
	var ts timespec
	ts.setNsec(min(ns, heddle.quantum.Load()))
	n, _, _ := linux.Syscall6(heddlePpoll, uintptr(unsafe.Pointer(&fds)), 1, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	return n == 1
}
