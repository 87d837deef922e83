// Command timers checks that the timers of threads interrupt no C code that sleeps, and that they
// end with their threads.
package main

/*
#include <errno.h>
#include <time.h>

// Whether a sleep of a millisecond was interrupted.
static int interrupted(void) {
	struct timespec t = { 0, 1000000 };
	return nanosleep(&t, 0) != 0 && errno == EINTR;
}

static void nothing(void) {}
*/
import "C"

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/heddle-sched/heddle/go/heddle"
)

func compute(n int) {
	x := uint64(n)
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
	}
	runtime.KeepAlive(x)
}

// timers returns the number of timers of the process.
func timers() int {
	text, err := os.ReadFile("/proc/self/timers")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return bytes.Count(text, []byte("ID: "))
}

func threads() int {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return len(tasks)
}

// settings returns how often the timers were set while several goroutines took turns after each
// call of C.
func settings(calls int) uint64 {
	heddle.Mark(heddle.Batch) // quanta are enforced from now on
	before := heddle.Read()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range calls / 4 {
				C.nothing()
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	heddle.Mark(heddle.Normal)
	return heddle.Read().Sub(before).TimerCalls
}

func main() {
	if n := settings(100_000); n > 10_000 {
		fmt.Fprintln(os.Stderr, n, "settings of timers for 100000 calls of C")
		os.Exit(1)
	}
	debug.SetGCPercent(-1) // it interrupts threads too
	var all sync.WaitGroup
	var interrupted atomic.Int64
	for range 3 {
		all.Go(func() {
			for range 100 {
				compute(100_000)
				interrupted.Add(int64(C.interrupted()))
			}
		})
	}
	all.Wait()
	// A preemption by sysmon may come just after a goroutine has entered C, as in stock Go. A tick
	// would interrupt nearly all of these 300 sleeps.
	if n := interrupted.Load(); n > 30 {
		fmt.Fprintln(os.Stderr, n, "sleeps of C were interrupted")
		os.Exit(1)
	}
	for range 100 {
		all.Go(func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			compute(500_000)
		})
	}
	all.Wait()
	if timers := timers(); timers == 0 || timers > threads() {
		fmt.Fprintln(os.Stderr, timers, "timers for", threads(), "threads")
		os.Exit(1)
	}
	fmt.Println("ok", runtime.Version())
}
