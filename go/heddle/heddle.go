package heddle

import (
	"errors"
	"fmt"
	"time"
)

// The range of quanta that [SetQuantum] takes. MaxQuantum is Go's own.
const (
	MinQuantum = 10 * time.Microsecond
	MaxQuantum = 10 * time.Millisecond
)

// ErrInactive is returned if the scheduler is not active: the program was built by a stock
// toolchain, or started with HEDDLE_GO=off.
var ErrInactive = errors.New(
	"heddle: the scheduler is not active (build with heddle go, and HEDDLE_GO must not be off)",
)

// Active reports whether Heddle's scheduler runs the program's goroutines, independent of the
// command and flags the program was built with.
func Active() bool { return scheduler != nil && scheduler.active() }

// Quantum returns how long a goroutine runs while new ones wait; 0: as long as Go's own rule lets
// it, which is 10 ms.
func Quantum() time.Duration {
	if scheduler == nil {
		return 0
	}
	return time.Duration(scheduler.quantum())
}

// SetQuantum changes the quantum for all goroutines, from the monitor's next pass on: after the
// old quantum, or up to HEDDLE_GO's long (1 ms) later if no goroutine waits. It takes 0, for Go's
// own rule alone, or MinQuantum to MaxQuantum. The error is [ErrInactive] if it can have no
// effect. Safe for concurrent use.
func SetQuantum(d time.Duration) error {
	if d != 0 && (d < MinQuantum || d > MaxQuantum) {
		return fmt.Errorf("heddle: a quantum of %v: it must be 0 or from %v to %v", d, MinQuantum, MaxQuantum)
	}
	if scheduler == nil || !scheduler.setQuantum(int64(d)) {
		return ErrInactive
	}
	return nil
}

// A Class is how the scheduler treats a goroutine.
type Class uint8

const (
	// Normal goroutines are preempted after the quantum if a new one waits.
	Normal Class = iota
	// LatencyCritical goroutines are preempted only by Go's own rule, after 10 ms, and then wait
	// among the new ones. For short work that must not be interrupted.
	LatencyCritical
	// Batch goroutines have no quantum: they yield as soon as the monitor sees that a new
	// goroutine waits. For work that is not urgent.
	Batch
)

// String returns the name of the constant.
func (c Class) String() string {
	switch c {
	case Normal:
		return "Normal"
	case LatencyCritical:
		return "LatencyCritical"
	case Batch:
		return "Batch"
	}
	return fmt.Sprintf("Class(%d)", uint8(c))
}

// Mark sets the class of the calling goroutine, until it exits or calls Mark again. Goroutines
// that it starts are Normal. While the quantum is 0, classes differ only in where goroutines wait.
// Mark does nothing if the scheduler is not active, and panics if c is not one of the constants.
func Mark(c Class) {
	if c > Batch {
		panic("heddle: Mark of an unknown class: " + c.String())
	}
	if scheduler != nil {
		scheduler.mark(uint8(c))
	}
}
