//go:build heddle

package heddle_test

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/heddle-sched/heddle/go/heddle"
)

// With check=on the runtime itself walks the global queue at each change, and throws if it does
// not match the fields of its sections.
func TestQueueIsKeptUnderStallsAndOverflows(t *testing.T) {
	plays(t, "stress",
		"check=on",
		"check=on,quantum=10us",
		"check=on,quantum=50us,sysmon=event,netpoll=10us",
		"check=on,quantum=20us,sysmon=spin",
		"check=on,quantum=20us,max-wait=100us",
		"check=on,quantum=20us,skip=off,guard=off",
		"check=on,quantum=20us,two-queue=off",
		"aspen,check=on,quantum=20us",
		"off",
	)
}

func TestTracesAndProfilesAreTakenAtAShortQuantum(t *testing.T) {
	plays(t, "traced", "check=on,quantum=100us", "check=on,quantum=20us,sysmon=event", "aspen,quantum=100us")
}

func TestWorldStopsWhileLocksAreHeld(t *testing.T) {
	plays(t, "world", "check=on,quantum=20us", "quantum=50us,sysmon=event", "aspen,quantum=20us")
}

// background is a set of goroutines that repeat something.
type background struct {
	isOver atomic.Bool
	all    sync.WaitGroup
}

func (b *background) keep(n int, do func()) {
	for range n {
		b.all.Go(func() {
			for !b.isOver.Load() {
				do()
			}
		})
	}
}

func (b *background) end() {
	b.isOver.Store(true)
	b.all.Wait()
}

func stress() {
	var b background
	b.keep(3, func() { spin(2 * time.Millisecond) })
	b.keep(2, inKernel)
	b.keep(2, pinned)
	b.keep(2, runtime.Gosched)
	b.keep(1, timers)
	b.keep(2, throughPipe)
	b.keep(1, func() { runtime.GC(); time.Sleep(3 * time.Millisecond) })
	b.keep(1, changeProcs())
	var mutex sync.Mutex
	b.keep(3, func() { mutex.Lock(); spin(30 * time.Microsecond); mutex.Unlock() })
	for range 12 {
		burst(700)
	}
	b.end()
}

func inKernel() {
	ts := syscall.NsecToTimespec(int64(200 * time.Microsecond))
	syscall.Nanosleep(&ts, nil)
}

func pinned() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spin(30 * time.Microsecond)
	runtime.Gosched()
	spin(30 * time.Microsecond)
}

func timers() {
	var all sync.WaitGroup
	all.Add(100)
	for i := range 100 {
		time.AfterFunc(time.Duration(i)*10*time.Microsecond, all.Done)
	}
	all.Wait()
}

// throughPipe makes a goroutine wait for the network poller.
func throughPipe() {
	r, w, err := os.Pipe()
	require(err == nil, "pipe: %v", err)
	defer r.Close()
	go func() {
		defer w.Close()
		w.Write([]byte("x"))
	}()
	text, err := io.ReadAll(r)
	require(string(text) == "x" && err == nil, "read %q: %v", text, err)
}

func changeProcs() func() {
	n := 0
	return func() {
		n++
		runtime.GOMAXPROCS(1 + n%4)
		time.Sleep(2 * time.Millisecond)
	}
}

// burst makes n goroutines runnable at once, twice: they are started, and then woken by one
// goroutine. That is more than the 256 of a P's own queue. Each must do its work exactly once.
func burst(n int) {
	gate := make(chan bool)
	counts := make([]int, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-gate
			work(i)
			counts[i]++
		})
	}
	close(gate)
	all.Wait()
	for i, count := range counts {
		require(count == 1, "goroutine %d did its work %d times", i, count)
	}
}

// work is a little of everything.
func work(i int) {
	switch i % 5 {
	case 0:
		runtime.Gosched()
	case 1:
		spin(50 * time.Microsecond)
	case 2:
		time.Sleep(time.Microsecond)
	case 3:
		inAnother(func() {})
	}
}

func traced() {
	require(trace.Start(io.Discard) == nil, "trace")
	require(pprof.StartCPUProfile(io.Discard) == nil, "profile")
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	stress()
	pprof.StopCPUProfile()
	trace.Stop()
}

var garbage []byte

// stopWorld stops the world again and again while goroutines are, nearly all of the time, where
// Heddle does not preempt them.
func stopWorld() {
	debug.SetGCPercent(5)
	var b background
	var rw sync.RWMutex
	kept := make([][]byte, 64)
	for i := range 6 {
		var own sync.Mutex
		b.keep(1, func() {
			own.Lock()
			defer own.Unlock()
			rw.RLock()
			defer rw.RUnlock()
			kept[i] = make([]byte, 1<<14)
			spin(3 * time.Millisecond)
		})
	}
	var stats runtime.MemStats
	for i := range 20 {
		if i%4 == 0 {
			runtime.GC() // sweeps, and yields for each span
		}
		runtime.ReadMemStats(&stats)
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0)%3 + 1)
		garbage = make([]byte, 1<<20)
	}
	b.end()
	require(stats.NumGC > 2, "%d collections of garbage", stats.NumGC)
	require(heddle.Read().Held > 0, "no lock has deferred a preemption: %v", heddle.Read())
}
