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
	heddle.lookedAt = now
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
	if heddle.calm >= heddleCalm && heddle.drowsy.Load() == 0 {
		heddle.calm = 0 // it was woken: what comes next may be soon
	}
	heddle.drowsy.Store(0)
}

// heddleSharpen makes the calling thread, sysmon's, wake up in time. Its timers
// are exact, else Linux adds 50us to each, and it asks for a short slice (Linux
// 6.12). Still, where a goroutine computes on the CPU that it wakes up on, a
// thread of the ordinary class waits for the kernel's next tick, up to 4 ms,
// whenever the computing one is behind its share (EEVDF), whatever its own nice
// value. With HEDDLE_GO=realtime=on it asks for the lowest real-time priority,
// which needs CAP_SYS_NICE or RLIMIT_RTPRIO. Then it is in time; but where other
// programs want the CPU, each of its looks lets the kernel choose anew between
// them and the goroutine. It runs for microseconds at a time, and where it waits
// for another thread it sleeps (heddleYield). Threads that it makes are ordinary
// ones again, by a flag that takes a nice value below 0 from them, and from a
// real-time thread's any: so the one is not asked for such a program, and the
// other for none but at 0, nor in spin mode.
func heddleSharpen() {
	const prSetTimerslack = 29
	linux.Syscall6(heddlePrctl, prSetTimerslack, 1, 0, 0, 0, 0)
	attr := struct {
		size, policy              uint32
		flags                     uint64
		nice                      int32
		priority                  uint32
		runtime, deadline, period uint64
	}{}
	const schedOther, schedFIFO, resetOnFork = 0, 1, 1
	at, size := uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)
	_, _, errno := linux.Syscall6(heddleSchedGetattr, 0, at, size, 0, 0, 0)
	if errno != 0 || attr.policy != schedOther || attr.nice < 0 {
		return
	}
	attr.flags |= resetOnFork
	asked := attr
	if heddle.realtime && heddle.mode != heddleSpin && attr.nice == 0 {
		attr.policy, attr.priority, attr.nice, attr.runtime = schedFIFO, 1, 0, 0
		if _, _, errno := linux.Syscall6(heddleSchedSetattr, 0, at, 0, 0, 0, 0); errno == 0 {
			return
		}
	}
	attr = asked
	attr.runtime = 100 * 1000
	linux.Syscall6(heddleSchedSetattr, 0, at, 0, 0, 0, 0)
}

// heddleYield is osyield where a goroutine's status is waited for; a real-time
// sysmon sleeps, else the thread that it waits for might never get the CPU.
//
//go:nosplit
func heddleYield() {
	if heddle.realtime && getg().m.p == 0 {
		usleep(heddleLeastPause / 1000)
	} else {
		osyield()
	}
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

// heddleRouse tells sysmon, if it sleeps for longer than a quantum, that there is
// a goroutine more to run. Whoever calls it holds no lock that sysmon wants.
func heddleRouse() {
	if heddle.drowsy.Load() == 1 && heddle.drowsy.CompareAndSwap(1, 0) {
		atomic.Xadd(&heddle.bell, 1)
		futexwakeup(&heddle.bell, 1)
	}
}

// heddleMayRest reports whether sysmon may sleep deeply if all Ps are idle.
func heddleMayRest() bool {
	return !heddle.on || nanotime()-heddle.busyAt >= heddleLinger
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
	next = now + heddleMostPause
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
	isOver = isOver && isPolled
	if isPolled && (!isOver || heddle.mode != heddleEvent) {
		next = min(next, last+heddle.netpoll)
	}
	return next, isOver
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
	case !heddle.skip || heddleWaits(pp, now):
		return start + quantum, false
	case start+quantum > now && heddle.mode == heddleEvent:
		return start + quantum, false
	case heddle.preempted.Load() != 0:
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
