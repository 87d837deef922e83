// Package heddle talks to Heddle's scheduler in programs that heddle-go has
// built: it reads the counters, changes the quantum and marks goroutines.
//
// A program that imports it builds and runs with a stock toolchain too, where
// nothing here has an effect: [Active] is false, [Read] gives zeros and
// [SetQuantum] the error [ErrInactive].
//
//	go run ./server          # stock: heddle.Active() == false
//	heddle-go run ./server   # with the scheduler
//
// The terms. A goroutine is new when it was started or woken, and preempted
// when it was made to give way in the middle of its work. New ones run before
// preempted ones. A goroutine that runs for longer than the quantum is
// preempted if somebody new waits; if nobody waits it goes on, which is a skip;
// if it has a sync.Mutex or sync.RWMutex it is left alone for now, it is held.
// Go's own rule stands behind all of this: after 10 ms a goroutine is
// preempted in any case. See Aspen (ASPLOS 2025), sections 3.2 and 3.3, for
// where the policy comes from.
//
// How the program is scheduled from its start is said by the environment
// variable HEDDLE_GO (heddle-go help). Whether the scheduler is there is seen in
// the program's runtime, not by the build tag heddle: heddle-go sets that for
// files of a program's own.
package heddle
