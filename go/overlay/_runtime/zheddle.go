// Heddle's additions to package runtime. The tool heddle-go adds these files
// to a build by an overlay and calls them by small edits of the scheduler
// (package overlay, edits.go). With HEDDLE_GO=off every function here does
// what the line that it replaces did.
//
// Invariants:
//
//   - R1: sched.runq holds all goroutines of the global queue, so whoever asks
//     whether it is empty is told the truth (zheddle_queue.go).
//   - R2: no goroutine runs for longer than forcePreemptNS while another one
//     waits: the stock rule stands behind every rule added here.
//   - R3: nothing here allocates, and no write barrier is needed.

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
	heddleTimer // of each thread; sysmon as with heddleEvent for those that have none
)

// What sysmon does between two looks.
const (
	heddleAwake   uint32 = iota
	heddleDozing         // it sleeps for longer than a quantum, and wants to know of new work
	heddleOffDuty        // every thread has a timer; it wants to know of one that stops
)

var heddle struct {
	// Set by heddleInit and never changed, but for quantum.
	on       bool         // any knob differs from the stock runtime
	quantum  atomic.Int64 // ns, 0: forcePreemptNS alone
	long     int64        // ns, the quantum while only preempted goroutines wait
	guard    int64        // ns for which a held lock puts a preemption off, 0: not at all
	netpoll  int64        // ns between two looks at the network by sysmon
	maxWait  int64        // ns until a preempted goroutine goes before new ones, 0: never
	twoQueue bool
	skip     bool
	check    bool
	mode     uint8

	isRefused bool // HEDDLE_GO was wrong, and the process is not the program's own

	// Whether quanta are enforced (zheddle_enforce.go).
	isAdaptive bool // set by heddleInit: only while the program needs it
	enforcing  atomic.Bool
	found      atomic.Uint32 // long slices in this period
	periodEnd  atomic.Int64

	// The sections of sched.runq. Changed under sched.lock; who does not hold it
	// reads them by atomic loads.
	lastNew   guintptr    // last of the new section, 0: the section is empty
	fresh     int32       // goroutines in the new section
	preempted int32       // goroutines in the preempted section
	oldest    int64       // since when the first of the preempted section waits, 0: it is empty
	aged      atomic.Bool // the first of the preempted section has waited for maxWait

	// sysmon's own.
	isPrecise bool  // its thread's timers are exact
	calm      int   // looks in a row after which nobody needed the next one soon
	busyAt    int64 // the last look at which a P was busy
	isNew     bool  // at the last look somebody waited for a P whose slice was new
	isSecond  bool  // the last pause was short for that reason
	foundAt   int64 // when it last counted a long slice

	lookedAt atomic.Int64 // when sysmon looked last

	bell   uint32        // the futex that sysmon sleeps on
	drowsy atomic.Uint32 // heddleAwake, ...
	polled bool          // the network has something for sysmon

	counts heddleCounts
}

// heddleCounts are read by programs with package heddle.
type heddleCounts struct {
	skips      atomic.Uint64 // quanta that were over while nobody waited
	held       atomic.Uint64 // preemptions put off because of a held lock
	forced     atomic.Uint64 // looks at which forcePreemptNS was over
	ticks      atomic.Uint64 // ticks of threads' timers
	timerCalls atomic.Uint64 // system calls that set these timers

	// Changed under sched.lock.
	preemptions uint64 // goroutines that were preempted
	waits       uint64 // preempted goroutines that run again
	waited      uint64 // ns that they waited, in all
	longest     uint64 // ns, the longest of these waits
	aged        uint64 // of these waits, those that maxWait ended
}
