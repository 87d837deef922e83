//go:build heddle

package heddle_test

import (
	"fmt"
	"os"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/heddle-sched/heddle/go/heddle"
)

// holders returns the ways to hold a lock during body.
func holders() map[string]func(body func()) {
	var mutex sync.Mutex
	var rw sync.RWMutex
	cond := sync.NewCond(new(sync.Mutex))
	locked := func(l sync.Locker) func(func()) {
		return func(body func()) {
			l.Lock()
			defer l.Unlock()
			body()
		}
	}
	tried := func(try func() bool, unlock func()) func(func()) {
		return func(body func()) {
			require(try(), "the lock is not free")
			defer unlock()
			body()
		}
	}
	return map[string]func(func()){
		"Mutex.Lock":       locked(&mutex),
		"Mutex.TryLock":    tried(mutex.TryLock, mutex.Unlock),
		"RWMutex.Lock":     locked(&rw),
		"RWMutex.RLock":    locked(rw.RLocker()),
		"RWMutex.TryLock":  tried(rw.TryLock, rw.Unlock),
		"RWMutex.TryRLock": tried(rw.TryRLock, rw.RUnlock),
		"Once.Do":          func(body func()) { new(sync.Once).Do(body) },
		"Cond.Wait":        func(body func()) { waited(cond, body) },
		"two, one of them released": func(body func()) {
			mutex.Lock()
			defer mutex.Unlock()
			rw.RLock()
			rw.RUnlock()
			body()
		},
		"after a wait for it": func(body func()) { handedToUs(&mutex, body) },
		"until a panic":       func(body func()) { panicking(&mutex, body) },
	}
}

// waited runs body after a Wait, which releases the lock and takes it again.
func waited(cond *sync.Cond, body func()) {
	cond.L.Lock()
	defer cond.L.Unlock()
	isCalled := false
	go func() {
		cond.L.Lock()
		defer cond.L.Unlock()
		isCalled = true
		cond.Broadcast()
	}()
	for !isCalled {
		cond.Wait()
	}
	body()
}

// handedToUs runs body under a lock that another goroutine had first.
func handedToUs(mutex *sync.Mutex, body func()) {
	has := make(chan bool)
	go func() {
		mutex.Lock()
		close(has)
		time.Sleep(time.Millisecond)
		mutex.Unlock()
	}()
	<-has
	mutex.Lock()
	defer mutex.Unlock()
	body()
}

func panicking(mutex *sync.Mutex, body func()) {
	defer func() { require(recover() == "expected", "another panic") }()
	mutex.Lock()
	defer mutex.Unlock()
	body()
	panic("expected")
}

// holder is the environment variable with the name of one of the holders.
const holder = "HEDDLE_TEST_HOLDER"

func TestGoroutineWithALockIsNotInterrupted(t *testing.T) {
	playsHolders(t, "guarded", "quantum=50us,guard=10ms", "aspen,quantum=50us,guard=10ms")
}

func TestGuardIsBounded(t *testing.T) {
	plays(t, "bounded", "quantum=50us,guard=200us", "aspen,quantum=50us,guard=200us")
}

// bounded lets a goroutine hold a lock for longer than the guard lasts: it is spared for a while,
// and then interrupted under the lock.
func bounded() {
	alone()
	var mutex sync.Mutex
	before := heddle.Read()
	for !interrupted(func(body func()) {
		mutex.Lock()
		defer mutex.Unlock()
		body()
	}) {
	}
	for heddle.Read().Sub(before).Held == 0 {
		interrupted(func(body func()) {
			mutex.Lock()
			defer mutex.Unlock()
			body()
		})
	}
}

func TestLockHoldersAreInterruptedWithoutTheGuard(t *testing.T) {
	playsHolders(t, "unguarded", "quantum=50us,guard=off")
}

func playsHolders(t *testing.T, scenario string, settings ...string) {
	var names []string
	for name := range holders() {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		t.Setenv(holder, name)
		for _, knobs := range settings {
			t.Run(fmt.Sprint(name, " ", knobs), func(t *testing.T) { play(t, scenario, knobs) })
		}
	}
}

func guarded() {
	alone()
	section := holders()[os.Getenv(holder)]
	for held := uint64(0); held < 5; {
		before := heddle.Read().Held
		require(!interrupted(section), "interrupted: %v", heddle.Read())
		held += heddle.Read().Held - before
	}
	for !interrupted(plain) {
	}
}

func unguarded() {
	alone()
	section := holders()[os.Getenv(holder)]
	for !interrupted(section) {
	}
	require(heddle.Read().Held == 0, "held without a guard: %v", heddle.Read())
}

func TestLockReleasedByAnotherGoroutine(t *testing.T) {
	plays(t, "handed over", "quantum=50us,guard=10ms", "aspen,quantum=50us,guard=10ms")
}

// handedOver lets one goroutine take a lock and another one release it. The count of the first
// stays up, so it now has a longer quantum; the other's is too low, so it is preempted as if it
// had no lock.
func handedOver() {
	alone()
	var mutex sync.Mutex
	mutex.Lock()
	inAnother(func() {
		mutex.Unlock()
		for !interrupted(plain) {
		}
		for !interrupted(func(body func()) {
			mutex.Lock()
			defer mutex.Unlock()
			body()
		}) {
		}
	})
	require(!interrupted(plain), "the count was lost: %v", heddle.Read())
	before := heddle.Read()
	other := make(chan bool)
	go close(other)
	until(func() bool { return isClosed(other) })
	s := heddle.Read().Sub(before)
	require(s.Forced > 0, "another goroutine ran before 10 ms were over: %v", s)
}

func isClosed(c chan bool) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
