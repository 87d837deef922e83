// The operations of `heddle bench threads` on goroutines, with one processor.
//
// Usage: peer OP MILLISECONDS; prints the CPU nanoseconds of one operation, the garbage collector's share included.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"unsafe"
)

func opYield(n int) {
	var group sync.WaitGroup
	group.Add(2)
	for range 2 {
		go func() {
			defer group.Done()
			for range n / 2 {
				runtime.Gosched()
			}
		}()
	}
	group.Wait()
}

// A goroutine has no handle to join: a wait group of one is what programs use.
func opSpawnJoin(n int) {
	var group sync.WaitGroup
	for range n {
		group.Add(1)
		go group.Done()
		group.Wait()
	}
}

func opSpawnYield(n int) {
	finished := 0
	for range n {
		go func() { finished++ }() // one processor and no preemption point inside: no race
		runtime.Gosched()
	}
	for finished < n {
		runtime.Gosched()
	}
}

func opMutex(n int) {
	var mutex sync.Mutex
	for range n {
		mutex.Lock()
		mutex.Unlock()
	}
}

func opCondvar(n int) {
	var mutex sync.Mutex
	turnOf := [2]*sync.Cond{sync.NewCond(&mutex), sync.NewCond(&mutex)}
	turn := 0
	var group sync.WaitGroup
	group.Add(2)
	for me := range 2 {
		go func() {
			defer group.Done()
			mutex.Lock()
			defer mutex.Unlock()
			for range n / 2 {
				for turn != me {
					turnOf[me].Wait()
				}
				turn = 1 - me
				turnOf[1-me].Signal()
			}
		}()
	}
	group.Wait()
}

var ops = map[string]func(int){
	"yield": opYield, "spawn_join": opSpawnJoin, "spawn_yield": opSpawnYield, "mutex": opMutex, "condvar": opCondvar,
}

func cpuNs() float64 {
	const processCPUTime = 2
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, processCPUTime, uintptr(unsafe.Pointer(&t)), 0)
	return float64(t.Nano())
}

func nsPerOp(op func(int), n int) float64 {
	begin := cpuNs()
	op(n)
	return (cpuNs() - begin) / float64(n)
}

// Warm up, estimate, then run for about the requested time: the same in every peer.
func main() {
	const warmUp = 2000
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: peer OP MILLISECONDS")
		os.Exit(2)
	}
	op, known := ops[os.Args[1]]
	budget, err := strconv.ParseFloat(os.Args[2], 64)
	if !known || err != nil {
		fmt.Fprintln(os.Stderr, "no such operation, or not a number:", os.Args[1:])
		os.Exit(2)
	}
	runtime.GOMAXPROCS(1)
	nsPerOp(op, warmUp)
	n := int(budget * 1e6 / (nsPerOp(op, warmUp) + 0.1))
	fmt.Printf("%.3f\n", nsPerOp(op, max(n, warmUp)))
}
