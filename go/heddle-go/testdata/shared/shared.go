// Library shared is called by threads of C, see caller.c.
package main

import "C"

import (
	"runtime"
	"sync"
)

// Sum adds the numbers below n, each in a goroutine of its own that computes for a while.
//
//export Sum
func Sum(n C.long) C.long {
	var all sync.WaitGroup
	var lock sync.Mutex
	sum := C.long(0)
	for i := range n {
		all.Go(func() {
			x := uint64(i)
			for range 50_000 {
				x = x*6364136223846793005 + 1442695040888963407
			}
			runtime.KeepAlive(x)
			lock.Lock()
			sum += i
			lock.Unlock()
		})
	}
	all.Wait()
	return sum
}

func main() {}
