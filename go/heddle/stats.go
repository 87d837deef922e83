package heddle

import (
	"fmt"
	"time"
)

// Stats are the scheduler's counters since the program started. Each is exact; they are read one
// after the other, so while the program runs they may be slightly out of step.
//
// As JSON, which is what an [expvar.Func] makes of it, durations are in nanoseconds.
type Stats struct {
	// Preemptions is how often a goroutine was preempted.
	Preemptions uint64 `json:"preemptions"`
	// Skips is how often the scheduler found a goroutine beyond its quantum and let it run because
	// no other one waited.
	Skips uint64 `json:"skips"`
	// Held is how often a goroutine beyond its quantum continued because it held a sync.Mutex or
	// sync.RWMutex.
	Held uint64 `json:"held"`
	// Forced is how often the monitor found that a goroutine had run for 10 ms, after which Go
	// preempts it in any case. It counts these checks: a goroutine that is slow to yield is
	// counted more than once, so at most Forced of the preemptions are due to this rule.
	Forced uint64 `json:"forced"`
	// Waits is how many of the goroutines that were preempted, or called runtime.Gosched, have run
	// again, and Waited how long they waited in total. Zero with two-queue=off. While few
	// goroutines use up their quantum, Waited and LongestWait have the resolution of the runtime
	// monitor's passes: 2 ms.
	Waits  uint64        `json:"waits"`
	Waited time.Duration `json:"waited_ns"`
	// LongestWait is the longest of these waits.
	LongestWait time.Duration `json:"longest_wait_ns"`
	// Aged is how many of these waits ended because max-wait had passed, ahead of new goroutines
	// that waited too.
	Aged uint64 `json:"aged"`
	// Ticks is how often the timer of a thread has interrupted it to check whether a quantum was
	// over, and TimerCalls how often the runtime has set these timers, each time by a system call.
	// Neither grows in a program whose goroutines yield before their quantum is over.
	Ticks      uint64 `json:"ticks"`
	TimerCalls uint64 `json:"timer_calls"`
}

// Read returns the counters. All are zero in a program that was built by a stock toolchain. With
// HEDDLE_GO=off Preemptions and Forced still count.
func Read() Stats {
	if scheduler == nil {
		return Stats{}
	}
	raw := scheduler.read()
	return Stats{
		Preemptions: raw[0],
		Skips:       raw[1],
		Held:        raw[2],
		Forced:      raw[3],
		Waits:       raw[4],
		Waited:      time.Duration(raw[5]),
		LongestWait: time.Duration(raw[6]),
		Aged:        raw[7],
		Ticks:       raw[8],
		TimerCalls:  raw[9],
	}
}

// Sub returns what was counted since before, an earlier reading. LongestWait cannot be subtracted:
// it stays the longest since the program started.
func (s Stats) Sub(before Stats) Stats {
	s.Preemptions -= before.Preemptions
	s.Skips -= before.Skips
	s.Held -= before.Held
	s.Forced -= before.Forced
	s.Waits -= before.Waits
	s.Waited -= before.Waited
	s.Aged -= before.Aged
	s.Ticks -= before.Ticks
	s.TimerCalls -= before.TimerCalls
	return s
}

// MeanWait returns how long a preempted goroutine waited on average, 0 if none did.
func (s Stats) MeanWait() time.Duration {
	if s.Waits == 0 {
		return 0
	}
	return s.Waited / time.Duration(s.Waits)
}

// String returns one line for a log.
func (s Stats) String() string {
	const format = "%d preemptions, %d skips, %d held, %d forced; %d waits (mean %v, longest %v, %d aged), %d ticks"
	return fmt.Sprintf(format,
		s.Preemptions, s.Skips, s.Held, s.Forced, s.Waits, s.MeanWait(), s.LongestWait, s.Aged, s.Ticks)
}
