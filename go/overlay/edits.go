package overlay

// An edit replaces a piece of one declaration of the standard library. Its anchor must occur in
// that declaration exactly once; otherwise the toolchain is not supported: nothing is built on a
// guess.
type edit struct {
	file   string // below GOROOT/src
	decl   string // a function, "Type.Method", "type T", or "import"
	anchor string
	with   string
}

// The fields use the hole before sig: g stays as large as before, which runtime's own tests check.
const (
	gHole   = "\trunningCleanups atomic.Bool\n"
	gFields = gHole + "\theddleClass     uint8\n\theddleHolds     int16\n"
)

// edits for every supported release. All logic is in the added files.
var edits = []edit{
	{"runtime/runtime2.go", "type g", gHole, gFields},

	// Knobs.
	{"runtime/proc.go", "schedinit", "\tgcinit()\n", "\theddleInit()\n\tgcinit()\n"},

	// When sysmon runs, and what it preempts.
	{"runtime/proc.go", "sysmon", "usleep(delay)", "heddlePause(delay)"},
	{"runtime/proc.go", "sysmon", "lastpoll+10*1000*1000 < now", "lastpoll+heddleNetpollInterval() < now"},
	{"runtime/proc.go", "retake", "pd.schedwhen = now", "pd.schedwhen = heddleStart(pp, now)"},
	{"runtime/proc.go", "type sysmontick", "\tsyscallwhen int64\n", "\tsyscallwhen int64\n\theddleCPU   int64\n"},
	{"runtime/proc.go", "retake", "pd.schedwhen+forcePreemptNS <= now", "heddleOver(pp, pd, now)"},
	{"runtime/proc.go", "retake",
		"if runqempty(pp) && sched.nmspinning",
		"if heddleBrief(pd, now) || runqempty(pp) && sched.nmspinning"},
	{"runtime/proc.go", "retake", "sysretake = true", "sysretake = pd.schedwhen+forcePreemptNS <= now"},
	{"runtime/proc.go", "sysmon", "if debug.schedtrace <= 0 && (", "if debug.schedtrace <= 0 && heddleMayRest() && ("},
	{"runtime/proc.go", "ready", "\twakep()\n", "\twakep()\n\theddleNotify()\n"},
	{"runtime/proc.go", "newproc",
		"\t\trunqput(pp, newg, true)\n",
		"\t\trunqput(pp, newg, true)\n\t\theddleNotify()\n"},

	{"runtime/proc.go", "wakeNetPoller", "(when int64) {\n", "(when int64) {\n\theddleNotify()\n"},

	// The timers of threads.
	{"runtime/runtime2.go", "type m", "\tsyscalltick uint32\n", "\tsyscalltick uint32\n\theddle      heddleTicker\n"},
	{"runtime/proc.go", "execute", "\tmp.curg = gp\n", "\theddleTurn(mp)\n\tmp.curg = gp\n"},
	{"runtime/proc.go", "exitsyscall", "\tgp.waitsince = 0\n", "\tgp.waitsince = 0\n\theddleBack()\n"},
	{"runtime/proc.go", "findRunnable", "\tif releasep() != pp {\n", "\theddleIdle()\n\tif releasep() != pp {\n"},
	{"runtime/proc.go", "mexit", "\tsigblock(true)\n", "\tsigblock(true)\n\theddleExit(mp)\n"},
	{"runtime/cgocall.go", "cgocall", "\tmp.ncgocall++\n", "\tmp.ncgocall++\n\theddleLeave()\n"},
	{"runtime/signal_unix.go", "sighandler",
		"\tif sig == sigPreempt && debug.asyncpreemptoff == 0 && !delayedSignal {\n",
		"\tif sig == sigPreempt && int32(c.sigcode()) == _SI_TIMER && heddle.mode == heddleTimer {\n" +
			"\t\tif !delayedSignal && heddleTick() {\n" +
			"\t\t\tdoSigPreempt(gp, c)\n" +
			"\t\t}\n" +
			"\t\treturn\n" +
			"\t}\n" +
			"\tif sig == sigPreempt && debug.asyncpreemptoff == 0 && !delayedSignal {\n"},
	{"runtime/signal_unix.go", "doSigPreempt",
		"if wantAsyncPreempt(gp) {",
		"if wantAsyncPreempt(gp) && !heddleIsSampled() {"},

	// Children, and the program that exec starts, do not inherit Heddle's settings.
	{"runtime/proc.go", "syscall_runtime_AfterForkInChild",
		"\tclearSignalHandlers()\n",
		"\tclearSignalHandlers()\n\theddleRestore()\n"},
	{"runtime/proc.go", "syscall_runtime_BeforeExec",
		"\texecLock.lock()\n",
		"\texecLock.lock()\n\theddleBeforeExec()\n"},
	{"runtime/proc.go", "syscall_runtime_AfterExec",
		"\texecLock.unlock()\n",
		"\theddleAfterExec()\n\texecLock.unlock()\n"},

	// Where a preempted goroutine waits.
	{"runtime/proc.go", "gopreempt_m", "\tgoschedImpl(gp, true)", "\theddleKeep(gp)\n\tgoschedImpl(gp, true)"},
	{"runtime/proc.go", "goschedImpl", "globrunqput(gp)", "heddlePutBack(gp, preempted)"},
	{"runtime/proc.go", "gdestroy", "\tgp.bubble = nil\n", "\tgp.bubble = nil\n\theddleForget(gp)\n"},

	// Two sections in the global queue.
	{"runtime/proc.go", "globrunqput", "sched.runq.pushBack(gp)", "heddlePush(gp)"},
	{"runtime/proc.go", "globrunqputhead", "sched.runq.push(gp)", "heddlePushFront(gp)"},
	{"runtime/proc.go", "globrunqputbatch", "sched.runq.pushBackAll(*batch)", "heddlePushAll(*batch)"},
	{"runtime/proc.go", "globrunqget", "return sched.runq.pop()", "return heddlePop()"},
	{"runtime/proc.go", "globrunqgetbatch",
		"\tn = min(n, sched.runq.size, sched.runq.size/gomaxprocs+1)\n",
		"\tif heddle.twoQueue {\n\t\treturn heddlePopBatch(n)\n\t}\n" +
			"\tn = min(n, sched.runq.size, sched.runq.size/gomaxprocs+1)\n"},
	{"runtime/proc.go", "findRunnable", "pp.schedtick%61 == 0 && !sched.runq.empty()", "heddleFairness(pp)"},
	{"runtime/proc.go", "findRunnable",
		"\t// global runq\n\tif !sched.runq.empty() {",
		"\t// global runq\n\tif heddleHasNew() {"},
	{"runtime/proc.go", "findRunnable",
		"\t// Spinning Ms: steal work from other Ps.\n",
		"\tif gp := heddleTakeEarly(pp); gp != nil {\n\t\treturn gp, false, false\n\t}\n\n" +
			"\t// Spinning Ms: steal work from other Ps.\n"},
	{"runtime/proc.go", "findRunnable",
		"\t// We have nothing to do.\n",
		"\tif gp := heddleTake(); gp != nil {\n\t\treturn gp, false, false\n\t}\n\n\t// We have nothing to do.\n"},

	// Locks held, counted per goroutine. Both changes of the count lie between taking the lock and
	// giving it up: a locked instruction waits for the stores before it, and there it waits for
	// the program's own anyway. The compiler inlines Lock, Unlock, RLock and RUnlock up to a
	// budget that the stock ones nearly exhaust. Therefore Unlock's common case is one
	// compare-and-swap that needs no variable, RLock counts before it takes the lock, and
	// RUnlock's slow path reloads what it compares: a writer that it may have to wake cannot
	// finish before it.
	{"internal/sync/mutex.go", "import", "import (\n", "import (\n\t\"runtime\"\n"},
	{"internal/sync/mutex.go", "Mutex.Lock",
		"\tif atomic.CompareAndSwapInt32(&m.state, 0, mutexLocked) {\n",
		"\tif atomic.CompareAndSwapInt32(&m.state, 0, mutexLocked) {\n\t\truntime.HeddleHold()\n"},
	{"internal/sync/mutex.go", "Mutex.lockSlow",
		"func (m *Mutex) lockSlow() {\n",
		"func (m *Mutex) lockSlow() {\n\truntime.HeddleHold()\n"},
	{"internal/sync/mutex.go", "Mutex.TryLock",
		"old|mutexLocked) {\n\t\treturn false\n\t}\n",
		"old|mutexLocked) {\n\t\treturn false\n\t}\n\truntime.HeddleHold()\n"},
	{"internal/sync/mutex.go", "Mutex.Unlock",
		"\tnew := atomic.AddInt32(&m.state, -mutexLocked)\n\tif new != 0 {\n",
		"\truntime.HeddleDrop()\n\tif !atomic.CompareAndSwapInt32(&m.state, mutexLocked, 0) {\n"},
	{"internal/sync/mutex.go", "Mutex.Unlock", "m.unlockSlow(new)", "m.unlockSlow()"},
	{"internal/sync/mutex.go", "Mutex.unlockSlow",
		"func (m *Mutex) unlockSlow(new int32) {\n",
		"func (m *Mutex) unlockSlow() {\n" +
			"\tnew := atomic.AddInt32(&m.state, -mutexLocked)\n" +
			"\tif new == 0 {\n\t\treturn\n\t}\n"},
	{"sync/rwmutex.go", "import", "import (\n", "import (\n\t\"runtime\"\n"},
	{"sync/rwmutex.go", "RWMutex.RLock",
		"\tif rw.readerCount.Add(1) < 0 {",
		"\truntime.HeddleHold()\n\tif atomic.AddInt32((*int32)(unsafe.Pointer(&rw.readerCount)), 1) < 0 {"},
	{"sync/rwmutex.go", "RWMutex.TryRLock",
		"\t\tif rw.readerCount.CompareAndSwap(c, c+1) {\n",
		"\t\tif rw.readerCount.CompareAndSwap(c, c+1) {\n\t\t\truntime.HeddleHold()\n"},
	{"sync/rwmutex.go", "RWMutex.RUnlock",
		"\tif r := rw.readerCount.Add(-1); r < 0 {",
		"\truntime.HeddleDrop()\n\tif atomic.AddInt32((*int32)(unsafe.Pointer(&rw.readerCount)), -1) < 0 {"},
	{"sync/rwmutex.go", "RWMutex.RUnlock", "rw.rUnlockSlow(r)", "rw.rUnlockSlow()"},
	{"sync/rwmutex.go", "RWMutex.rUnlockSlow",
		"func (rw *RWMutex) rUnlockSlow(r int32) {\n",
		"func (rw *RWMutex) rUnlockSlow() {\n\tr := rw.readerCount.Load()\n"},
}

// release is what differs between releases of Go.
type release struct {
	minor int
	// syscalls is the package of raw system calls that runtime imports.
	syscalls string
}

// releases that are supported and tested.
var releases = []release{
	{25, "internal/runtime/syscall"},
	{26, "internal/runtime/syscall/linux"},
	{27, "internal/runtime/syscall/linux"},
}
