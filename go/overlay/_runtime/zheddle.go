// Heddle's additions to package runtime. The tool heddle-go adds these files to a build through an
// overlay and calls them from small edits of the scheduler (package overlay, edits.go). With
// HEDDLE_GO=off every function here does what the line it replaces did.
//
// Invariants:
//
//   - R1: sched.runq holds all goroutines of the global queue, so a caller that checks whether it is
//     empty gets the right answer (zheddle_queue.go).
//   - R2: no goroutine runs for longer than forcePreemptNS while another one waits: the stock rule backs
//     every rule added here.
//   - R3: nothing here allocates or, once the program runs, needs a write barrier.

package runtime

import "internal/runtime/atomic"

const (
	heddleNormal uint8 = iota
	heddleLatencyCritical
	heddleBatch
)

const (
	heddleSleep uint8 = iota
	heddleSpin
	heddleEvent
	heddleTimer // one per thread; threads without one are served by sysmon as with heddleEvent
)

// What sysmon does between two passes.
const (
	heddleAwake    uint32 = iota
	heddleSleeping        // sleeps for longer than a quantum; must be woken for new work
	heddleOffDuty         // every thread has a timer; must be woken when one stops
)

var heddle struct {
	// Set by heddleInit and constant afterwards, except quantum.
	on       bool         // any knob differs from the stock runtime
	quantum  atomic.Int64 // ns, 0: forcePreemptNS alone
	long     int64        // ns, the quantum while only preempted goroutines wait
	guard    int64        // ns for which a held lock defers a preemption, 0: not at all
	netpoll  int64        // ns between two polls of the network by sysmon
	maxWait  int64        // ns until a preempted goroutine runs before new ones, 0: never
	twoQueue bool
	skip     bool
	check    bool
	mode     uint8

	isRefused bool // HEDDLE_GO is invalid, and this is a library in a foreign process

	// Whether quanta are enforced (zheddle_enforce.go).
	isAdaptive bool // set by heddleInit: enforce only while the program needs it
	enforcing  atomic.Bool
	found      atomic.Uint32 // long slices in this period
	periodEnd  atomic.Int64

	// The sections of sched.runq. Written under sched.lock; readers without the lock use atomic
	// loads.
	lastNew   guintptr    // last of the new section, 0: the section is empty
	fresh     int32       // goroutines in the new section
	preempted int32       // goroutines in the preempted section
	oldest    int64       // start of the wait of the first in the preempted section, 0: it is empty
	aged      atomic.Bool // the first of the preempted section has waited for maxWait

	// Private to sysmon.
	isPrecise bool  // its thread's timers have no slack
	calm      int   // consecutive passes that did not need the next one soon
	busyAt    int64 // the last pass that saw a busy P
	isNew     bool  // at the last pass a goroutine waited for a P whose slice was new
	isSecond  bool  // the last pause was short for that reason
	foundAt   int64 // when it last counted a long slice

	lookedAt atomic.Int64 // time of sysmon's last pass

	wakeups     uint32        // the futex that sysmon sleeps on
	sysmonState atomic.Uint32 // heddleAwake, ...
	polled      bool          // the network has something for sysmon

	counts *heddleCounts // set by heddleInit: in the page or heddleUnseen
}

// heddleUnseen is where the scheduler counts if there is no page.
var heddleUnseen heddleCounts

// heddleCounts is what programs read through package heddle, and other processes in the page, in this
// order (zheddle_page.go).
type heddleCounts struct {
	skips      atomic.Uint64 // quanta that expired while no goroutine waited
	held       atomic.Uint64 // preemptions deferred because of a held lock
	forced     atomic.Uint64 // checks that found forcePreemptNS exceeded
	ticks      atomic.Uint64 // ticks of threads' timers
	timerCalls atomic.Uint64 // system calls that set these timers

	// Changed under sched.lock.
	preemptions uint64 // goroutines that were preempted
	waits       uint64 // preempted goroutines that run again
	waited      uint64 // ns of these waits, in total
	longest     uint64 // ns, the longest of these waits
	aged        uint64 // of these waits, those that maxWait ended
}
