package runtime

import (
	"internal/runtime/atomic"
	"internal/runtime/syscall/linux"
	"unsafe"
)

const (
	// heddleLeastPause is sysmon's shortest one, as in the stock runtime.
	heddleLeastPause = 20 * 1000
	// heddleCalm is how many looks in a row must have been needless before
	// sysmon sleeps for longer than a quantum. Whoever makes work then pays
	// for waking it, so this is how rarely that may happen.
	heddleCalm = 16
)

// heddlePause is sysmon's sleep between two looks.
func heddlePause(delay uint32) {
	if !heddle.on {
		usleep(delay)
		return
	}
	if !heddle.isPrecise {
		heddle.isPrecise = true
		const prSetTimerslack = 29
		linux.Syscall6(heddlePrctl, prSetTimerslack, 1, 0, 0, 0, 0)
	}
	now := nanotime()
	heddleAge(now)
	heddle.drowsy.Store(1)
	until, isOver := heddleNext(now)
	quantum := heddle.quantum.Load()
	switch heddle.calm++; {
	case quantum == 0 || until-now <= quantum:
		heddle.calm = 0
	case heddle.calm < heddleCalm:
		until = now + quantum
	}
	if heddle.calm < heddleCalm {
		heddle.drowsy.Store(0)
	}
	heddleWait(now, max(until, now+heddleLeastPause), isOver)
	heddle.drowsy.Store(0)
}

// heddleWait waits until then, or until sysmon is woken.
func heddleWait(now, until int64, isOver bool) {
	switch {
	case heddle.mode == heddleSpin:
		for nanotime() < until && (heddle.calm < heddleCalm || heddle.drowsy.Load() == 1) {
			procyield(30)
		}
	case heddle.mode == heddleEvent && isOver:
		heddle.polled = heddlePoll(until - now)
	default:
		bell := atomic.Load(&heddle.bell)
		if heddle.calm < heddleCalm || heddle.drowsy.Load() == 1 {
			futexsleep(&heddle.bell, bell, until-now)
		}
	}
}

// heddleRouse tells sysmon, if it sleeps for long, that there is new work. In
// its deep sleep, while all Ps were idle, the stock runtime wakes it for timers
// and system calls, but not when the network has made a P busy.
func heddleRouse() {
	if heddle.drowsy.Load() == 1 && heddle.drowsy.CompareAndSwap(1, 0) {
		atomic.Xadd(&heddle.bell, 1)
		futexwakeup(&heddle.bell, 1)
	}
	if heddle.on && sched.sysmonwait.Load() {
		lock(&sched.lock)
		if sched.sysmonwait.Load() {
			sched.sysmonwait.Store(false)
			notewakeup(&sched.sysmonnote)
		}
		unlock(&sched.lock)
	}
}

// heddleAge finds out whether a preempted goroutine has waited for too long.
func heddleAge(now int64) {
	oldest := heddle.oldest.Load()
	isAged := heddle.maxWait != 0 && oldest != 0 && now-oldest >= heddle.maxWait
	if isAged != heddle.aged.Load() {
		heddle.aged.Store(isAged)
	}
}

// heddleNext is when sysmon must look next, and whether a P is over its
// quantum while nobody waits for it, so that only the network can bring
// somebody that sysmon must see at once.
func heddleNext(now int64) (next int64, isOver bool) {
	next = now + heddle.long
	lock(&allpLock)
	for _, pp := range allp {
		if pp == nil {
			continue
		}
		if s := atomic.Load(&pp.status); s == _Pidle || s == _Pgcstop || s == _Pdead {
			continue
		}
		when, over := heddleNextOf(pp, now)
		next = min(next, when)
		isOver = isOver || over
	}
	unlock(&allpLock)
	if last := sched.lastpoll.Load(); last != 0 && netpollinited() && netpollAnyWaiters() {
		isOver = isOver && epfd != -1
		if !isOver || heddle.mode != heddleEvent {
			next = min(next, last+heddle.netpoll)
		}
	} else {
		isOver = false
	}
	return next, isOver
}

// heddleNextOf is heddleNext for one P.
func heddleNextOf(pp *p, now int64) (next int64, isOver bool) {
	if heddleInSyscall(pp) && heddleWaits(pp, now) {
		return now, false
	}
	quantum := heddleQuantum(pp)
	if quantum == 0 {
		return now + heddle.long, false
	}
	start := now
	if pd := &pp.sysmontick; pd.schedtick == pp.schedtick {
		start = pd.schedwhen
	}
	switch {
	case !heddle.skip || heddleWaits(pp, now):
		return start + quantum, false
	case start+quantum > now && heddle.mode == heddleEvent:
		return start + quantum, false
	case heddle.preempted.Load() != 0:
		next = max(start+max(heddle.long, quantum), now)
	default:
		next = now + heddle.long
	}
	if when := pp.timers.wakeTime(); when != 0 {
		next = min(next, max(when, start+quantum))
	}
	return next, start+quantum <= now
}

// heddleInSyscall reports whether who runs on pp is in the kernel: two looks
// of sysmon, and others get the P.
func heddleInSyscall(pp *p) bool {
	gp := heddleRuns(pp)
	return gp == nil || readgstatus(gp)&^_Gscan == _Gsyscall
}

// heddleNetpollInterval is how long nobody may have looked at the network
// before sysmon does, in ns.
func heddleNetpollInterval() int64 {
	if heddle.polled {
		heddle.polled = false
		return 0
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
