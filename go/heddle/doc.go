// Package heddle gives programs that heddle-go has built access to Heddle's scheduler: it reads
// the counters, changes the quantum and marks goroutines.
//
// A program that imports it also builds and runs with a stock toolchain, where it has no effect:
// [Active] is false, [Read] returns zeros and [SetQuantum] the error [ErrInactive].
//
//	go run ./server          # stock: heddle.Active() == false
//	heddle-go run ./server   # with the scheduler
//
// Terms. A goroutine is new when it was started or woken, and preempted when it was interrupted in
// the middle of its work. New ones run before preempted ones. A goroutine that runs for longer
// than the quantum is preempted if a new one waits. If none waits it continues, which is a skip;
// if it holds a sync.Mutex or sync.RWMutex it continues for now, which is a hold. Go's own rule
// backs all of this: after 10 ms a goroutine is preempted in any case. The policy comes from Aspen
// (ASPLOS 2025), sections 3.2 and 3.3.
//
// The environment variable HEDDLE_GO sets how the program is scheduled from its start (heddle-go
// help). Whether the scheduler is present is detected from the program's runtime, not from the
// build tag heddle, which heddle-go sets for the program's own files.
package heddle
