// Command callback calls from Go into C and from there back into Go, which
// computes for longer than a quantum, while other goroutines compute too.
package main

/*
extern long intoGo(long);

static long intoC(long x) {
	volatile long spin = 0;
	for (int i = 0; i < 2000; i++)
		spin += i;
	return intoGo(x) + 1;
}
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"sync"
)

//export intoGo
func intoGo(x C.long) C.long {
	if x%100 == 0 {
		compute(500_000)
		runtime.Gosched()
	}
	if x%1000 == 0 {
		return C.intoC(x - 1) // x: one more on the way back
	}
	return x
}

func compute(n int) {
	x := uint64(n)
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
	}
	runtime.KeepAlive(x)
}

func main() {
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { compute(50_000_000) })
	}
	for range 8 {
		all.Go(func() {
			for x := range C.long(2000) {
				if got := C.intoC(x); got != x+1 {
					fmt.Fprintln(os.Stderr, "got", got, "for", x)
					os.Exit(1)
				}
			}
		})
	}
	all.Wait()
	fmt.Println("ok", runtime.Version())
}
