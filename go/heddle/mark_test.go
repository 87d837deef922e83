//go:build heddle

package heddle_test

import (
	"sync"
	"testing"

	"github.com/heddle-sched/heddle/go/heddle"
)

func TestLatencyCriticalGoroutineIsNotInterrupted(t *testing.T) {
	plays(t, "critical", "quantum=50us", "aspen,quantum=50us")
}

func critical() {
	alone()
	heddle.Mark(heddle.LatencyCritical)
	for range 20 {
		require(!interrupted(plain), "interrupted: %v", heddle.Read())
	}
	heddle.Mark(heddle.Normal)
	for !interrupted(plain) {
	}
}

func TestBatchGoroutineHasNoQuantum(t *testing.T) {
	plays(t, "batch", "quantum=10ms")
}

func batch() {
	alone()
	for range 5 {
		require(!interrupted(plain), "interrupted before its quantum was over: %v", heddle.Read())
	}
	heddle.Mark(heddle.Batch)
	for !interrupted(plain) {
	}
}

func TestChildrenAreNormal(t *testing.T) {
	plays(t, "children", "quantum=50us")
}

func children() {
	alone()
	heddle.Mark(heddle.LatencyCritical)
	for range 3 {
		inAnother(func() {
			for !interrupted(plain) {
			}
		})
	}
	require(!interrupted(plain), "the parent has lost its class: %v", heddle.Read())
}

func TestClassesAndLocksEndWithTheirGoroutine(t *testing.T) {
	plays(t, "reuse", "quantum=50us")
}

// reuse starts goroutines one after the other on one P, so that each reuses the g of an earlier
// one.
func reuse() {
	alone()
	for range 20 {
		inAnother(func() {
			heddle.Mark(heddle.LatencyCritical)
			new(sync.Mutex).Lock()
		})
	}
	for range 20 {
		inAnother(func() {
			for !interrupted(plain) {
			}
		})
	}
}

// inAnother runs f in a goroutine of its own, to its end.
func inAnother(f func()) {
	done := make(chan bool)
	go func() {
		defer close(done)
		f()
	}()
	<-done
}
