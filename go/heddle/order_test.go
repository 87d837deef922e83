//go:build heddle

package heddle_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/heddle-sched/heddle/go/heddle"
)

// crowd is how many goroutines are started at once: more than twice what a P's own queue holds, so
// many of them wait in the global one.
const crowd = 600

// start starts the crowd without being preempted before the end, if possible.
func start(ran *atomic.Int32, each func()) {
	heddle.Mark(heddle.LatencyCritical)
	for range crowd {
		go func() {
			each()
			ran.Add(1)
		}()
	}
}

func TestNewGoroutinesRunBeforePreemptedOnes(t *testing.T) {
	plays(t, "order", "max-wait=off", "max-wait=off,sysmon=event", "max-wait=off,check=on")
}

func TestPreemptedGoroutineKeepsItsPlaceInOneQueue(t *testing.T) {
	plays(t, "overtaken", "max-wait=off,two-queue=off", "aspen")
}

func order() {
	late := afterPreempted(3)
	require(late == 0, "%d new goroutines ran after a preempted one", late)
}

func overtaken() {
	late := afterPreempted(1)
	require(late != 0, "all new goroutines ran before one that had waited in the same queue")
}

// afterPreempted starts so many crowds while a preempted goroutine waits, and returns how many of the
// crowd ran after it, the fewest of them: on a busy machine one of the crowd may itself be preempted
// before it looks. A crowd that was not started in one go is discarded.
func afterPreempted(crowds int) int32 {
	alone()
	heddle.Mark(heddle.LatencyCritical)
	var laps atomic.Int64
	go func() {
		for {
			laps.Add(1)
		}
	}()
	for laps.Load() == 0 {
		runtime.Gosched()
	}
	fewest := int32(crowd)
	for crowds > 0 {
		var late, ran atomic.Int32
		var all sync.WaitGroup
		all.Add(crowd)
		lapsBefore, before := laps.Load(), heddle.Read().Preemptions
		start(&ran, func() {
			if laps.Load() != lapsBefore {
				late.Add(1)
			}
			all.Done()
		})
		isAtOnce := heddle.Read().Preemptions == before
		all.Wait()
		if isAtOnce {
			fewest = min(fewest, late.Load())
			crowds--
		}
	}
	return fewest
}

func TestGoschedGoesBehindNewGoroutines(t *testing.T) {
	plays(t, "yield", "max-wait=off", "max-wait=off,skip=off", "max-wait=off,check=on")
}

func TestGoschedKeepsItsPlaceInOneQueue(t *testing.T) {
	plays(t, "no yield", "two-queue=off", "aspen", "off")
}

func TestLatencyCriticalGoroutineWaitsAmongNewOnes(t *testing.T) {
	plays(t, "yield first", "max-wait=off")
}

func yield() {
	alone()
	ran := beforeYielded()
	require(ran == crowd, "Gosched: only %d of %d new goroutines ran first", ran, crowd)
}

func noYield() {
	alone()
	ran := beforeYielded()
	require(ran < crowd, "Gosched: all new goroutines ran first")
}

func yieldFirst() {
	alone()
	heddle.Mark(heddle.LatencyCritical)
	noYield()
}

// beforeYielded calls Gosched while another goroutine starts the crowd, and returns how many of
// the crowd ran before the caller.
func beforeYielded() int32 {
	for {
		var ran atomic.Int32
		before := heddle.Read().Preemptions
		go start(&ran, func() {})
		runtime.Gosched()
		first := ran.Load()
		isAtOnce := heddle.Read().Preemptions == before
		for ran.Load() != crowd {
			runtime.Gosched()
		}
		if isAtOnce {
			return first
		}
	}
}

func TestPreemptedGoroutineRunsAgainUnderAStreamOfNewOnes(t *testing.T) {
	plays(t, "age",
		"max-wait=1ms",
		"max-wait=1ms,sysmon=spin",
		"max-wait=5ms,quantum=20us,sysmon=event",
		"max-wait=1ms,check=on",
	)
}

// age has 16 chains of goroutines, each of which starts the next one before its own work, so that
// new ones always wait.
func age() {
	alone()
	var links, laps atomic.Int64
	var link func()
	link = func() {
		go link()
		for range 2000 {
			links.Add(1)
		}
	}
	for range 16 {
		go link()
	}
	turns := 0
	for seen := links.Load(); turns < 20 || heddle.Read().Aged == 0; laps.Add(1) {
		if now := links.Load(); now != seen {
			seen = now
			turns++
		}
	}
}
