//go:build heddle

package heddle_test

import (
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/heddle-sched/heddle/go/heddle"
)

// interrupted reports whether the caller is preempted by Heddle's rules during the body of
// section, which takes 2 ms while a new goroutine waits. There is one P (alone), so the caller is
// preempted if and only if the other goroutine has run. Slices so long that Go's own rule may have
// interfered, on a busy machine, are discarded and tried again.
func interrupted(section func(body func())) bool {
	for {
		runtime.Gosched()
		start := time.Now()
		var ran atomic.Bool
		isInterrupted := false
		section(func() {
			go ran.Store(true)
			spin(2 * time.Millisecond)
			isInterrupted = ran.Load()
		})
		isOurs := time.Since(start) < 8*time.Millisecond
		for !ran.Load() {
			runtime.Gosched()
		}
		if isOurs {
			return isInterrupted
		}
	}
}

// plain is a section without a lock.
func plain(body func()) { body() }

func TestLoneGoroutineIsNotPreempted(t *testing.T) {
	plays(t, "lone", "heddle", "quantum=20us", "sysmon=event", "sysmon=spin")
}

func lone() {
	alone()
	before := heddle.Read()
	since := func() heddle.Stats { return heddle.Read().Sub(before) }
	// A timer checks rarely if no goroutine waits, and then for Go's own rule.
	until(func() bool { s := since(); return s.Skips >= 100 || s.Forced >= 20 })
	s := since()
	// The runtime has goroutines of its own, which do wait now and then.
	require(s.Preemptions <= s.Forced+s.Skips/10+2, "preempted, though none waits: %v", s)
}

func TestAspensPolicyPreemptsInAnyCase(t *testing.T) {
	plays(t, "aspen", "aspen", "aspen,quantum=50us", "skip=off")
}

func aspen() {
	alone()
	until(func() bool { s := heddle.Read(); return s.Preemptions >= s.Forced+10 })
	require(heddle.Read().Skips == 0, "skips: %v", heddle.Read())
}

func TestOffBehavesLikeStockGo(t *testing.T) {
	plays(t, "off", "off")
}

func off() {
	require(!heddle.Active(), "active")
	require(heddle.SetQuantum(heddle.MinQuantum) == heddle.ErrInactive, "the quantum can be set")
	alone()
	go spin(time.Hour)
	until(func() bool { return heddle.Read().Preemptions >= 5 })
	s := heddle.Read()
	require(s.Preemptions <= s.Forced, "preempted before 10 ms: %v", s)
	require(s.Skips == 0 && s.Held == 0 && s.Waits == 0 && s.Aged == 0, "more than Go does: %v", s)
}

func TestQuantumCanBeChangedWhileTheProgramRuns(t *testing.T) {
	plays(t, "quantum", "quantum=10ms", "quantum=off", "aspen,quantum=off,netpoll=100us")
}

func changeQuantum() {
	alone()
	for range 5 {
		require(!interrupted(plain), "interrupted before 10 ms: %v", heddle.Read())
	}
	require(heddle.SetQuantum(50*time.Microsecond) == nil, "SetQuantum")
	for !interrupted(plain) {
	}
	require(heddle.SetQuantum(0) == nil, "SetQuantum")
	spin(time.Millisecond) // sysmon may be in the middle of a pass
	for range 5 {
		require(!interrupted(plain), "interrupted without a quantum: %v", heddle.Read())
	}
}

// Each timer counts against the limit on pending signals (RLIMIT_SIGPENDING).
func TestThreadsWithoutTimersArePreempted(t *testing.T) {
	playAfter(t, "ulimit -i 0;", "quantum", "quantum=off")
}

func TestTicksAreNotDeliveredToTheProgram(t *testing.T) {
	plays(t, "urgent", "heddle", "quantum=20us")
}

func urgent() {
	alone()
	signals := make(chan os.Signal, 1000)
	signal.Notify(signals, syscall.SIGURG)
	for heddle.Read().Preemptions < 200 {
		interrupted(plain)
	}
	// Go's own preemptions do reach it, as always.
	s := heddle.Read()
	require(uint64(len(signals)) <= s.Forced+20, "%d signals: %v", len(signals), s)
}
