package runtime

import (
	"internal/runtime/atomic"
	"internal/runtime/syscall/linux"
	"unsafe"
)

const (
	// heddleLeastPause is sysmon's shortest one. A thread that wakes up soon
	// after it has run has had more than its share of the CPU in the kernel's
	// eyes (EEVDF), and where a goroutine computes on that CPU it then waits for
	// the kernel's next tick, up to 4 ms: with the stock runtime's 20us here,
	// every second preemption came too late.
	heddleLeastPause = 50 * 1000
	// heddleCalm is how many looks in a row must have been needless before
	// sysmon sleeps for longer than a quantum. Whoever makes work then pays
	// for waking it, so this is how rarely that may happen.
	heddleCalm = 16
	// heddleMostPause is its longest one.
	heddleMostPause = 1000 * 1000
	// heddleNudge is its pause where all busy threads have timers, but the network
	// may have something. Not for what it sees: each time that it wakes up, the
	// kernel chooses anew between a program that is not ours and a thread of ours
	// that waits for that CPU, which otherwise is not before the next tick.
	heddleNudge = 200 * 1000
	// heddleLinger is for how long all Ps must have been idle before sysmon
	// sleeps as deeply as in the stock runtime. It is woken from that under
	// sched.lock, which it then wants itself: so it yields, and does not get the
	// CPU back before the kernel's next tick.
	heddleLinger = 1000 * 1000 * 1000
)

// heddlePause is sysmon's sleep between two looks.
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
	heddle.drowsy.Store(heddleOffDuty)
	until, isOver, isNeeded := heddleNext(now)
	if !isNeeded {
		heddle.calm = 0
		rest := int64(heddleRest)
		if isOver {
			rest = heddleNudge
		}
		heddleWait(now, now+rest, false, heddleOffDuty)
		heddle.drowsy.Store(heddleAwake)
		return
	}
	heddle.drowsy.Store(heddleDozing)
	quantum := heddle.quantum.Load()
	switch heddle.calm++; {
	case quantum == 0 || until-now <= quantum:
		heddle.calm = 0
	case heddle.calm < heddleCalm:
		until = now + quantum
	}
	if heddle.calm < heddleCalm {
		heddle.drowsy.Store(heddleAwake)
	}
	heddleWait(now, max(until, now+heddleLeastPause), isOver, heddle.drowsy.Load())
	if heddle.calm >= heddleCalm && heddle.drowsy.Load() == heddleAwake {
		heddle.calm = 0 // it was woken: what comes next may be soon
	}
	heddle.drowsy.Store(heddleAwake)
}

// heddleRelaxedDelay is sysmon's sleep in us while the scheduler is relaxed. delay
// is the stock runtime's.
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

// heddleSharpen makes the calling thread, sysmon's, wake up in time. Its timers
// are exact, else Linux adds 50us to each, and it asks for a short slice. Still,
// where a goroutine computes on the CPU that it wakes up on, it waits for the
// kernel's next tick, up to 4 ms, whenever the computing thread is behind its
// share (EEVDF): so preemption does not depend on it (zheddle_tick.go).
func heddleSharpen() {
	linux.Syscall6(heddlePrctl, heddleSetTimerslack, heddleMonitorSlack, 0, 0, 0, 0)
	heddleSlice(heddleMonitorSlice)
}

// heddleWait waits until then, or until sysmon is woken if it is drowsy.
func heddleWait(now, until int64, isOver bool, drowsy uint32) {
	switch {
	case heddle.mode == heddleSpin:
		for nanotime() < until && heddle.drowsy.Load() == drowsy {
			procyield(30)
		}
	case heddle.mode >= heddleEvent && isOver:
		heddle.polled = heddlePoll(until - now) // it is never drowsy then
	default:
		bell := atomic.Load(&heddle.bell)
		if heddle.drowsy.Load() == drowsy {
			futexsleep(&heddle.bell, bell, until-now)
		}
	}
}

// heddleRouse tells who sleeps for longer than a quantum that there is a
// goroutine more to run: sysmon, and the calling thread's timer. Whoever calls it
// holds no lock that sysmon wants.
func heddleRouse() {
	if heddle.drowsy.Load() == heddleDozing {
		heddleWakeSysmon(heddleDozing)
	}
	if t := &getg().m.heddle; t.resting {
		heddleWakeTimer(t)
	}
}

// heddleHandOver tells sysmon that it has a P to look after, whose thread's timer
// has stopped.
func heddleHandOver() {
	if heddle.drowsy.Load() == heddleOffDuty {
		heddleWakeSysmon(heddleOffDuty)
	}
}

func heddleWakeSysmon(drowsy uint32) {
	if heddle.drowsy.CompareAndSwap(drowsy, heddleAwake) {
		atomic.Xadd(&heddle.bell, 1)
		futexwakeup(&heddle.bell, 1)
	}
}

// heddleMayRest reports whether sysmon may sleep deeply if all Ps are idle.
func heddleMayRest() bool {
	return !heddle.enforcing.Load() || nanotime()-heddle.busyAt >= heddleLinger
}

// heddleAge finds out whether a preempted goroutine has waited for too long.
func heddleAge(now int64) {
	oldest := atomic.Loadint64(&heddle.oldest)
	isAged := heddle.maxWait != 0 && oldest != 0 && now-oldest >= heddle.maxWait
	if isAged != heddle.aged.Load() {
		heddle.aged.Store(isAged)
	}
}

// heddleNext is when sysmon must look next, whether a P is over its quantum while
// nobody waits for it, so that only the network can bring somebody that sysmon
// must see at once, and whether there is a P at all that it must look after.
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

// heddleBrief reports whether a system call is too young for its P to be taken
// from it. Writing to a socket computes for tens of microseconds in the kernel:
// who takes the P then puts a second thread beside one that still needs the CPU.
func heddleBrief(pd *sysmontick, now int64) bool {
	return heddle.on && now-pd.syscallwhen < heddle.quantum.Load()
}

// heddleNetpollInterval is how long nobody may have looked at the network
// before sysmon does, in ns.
func heddleNetpollInterval() int64 {
	if heddle.polled {
		heddle.polled = false
		return 0
	}
	if heddle.isAdaptive && !heddle.enforcing.Load() {
		return max(heddle.netpoll, heddleRelaxedPause) / 2
	}
	if heddle.on {
		return heddle.netpoll / 2 // looks are about as far apart, and none is to be missed
	}
	return heddle.netpoll
}

// heddlePoll waits for at most ns until the network has something, and reports
// whether it has. It takes nothing from the network's poller.
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
