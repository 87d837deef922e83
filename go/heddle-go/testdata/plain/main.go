// Command plain exercises what the scheduler treats differently: goroutines that compute beside
// those that wait for the network, a timer, a lock or their turn, more of them than a local run
// queue holds. It prints ok if all have finished and nothing was lost.
package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"
)

func main() {
	runtime.GOMAXPROCS(1)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { compute(20_000_000) })
	}
	all.Go(func() { echo(100) })
	all.Go(timers)
	all.Go(locks)
	all.Go(func() { crowd(1000) })
	all.Wait()
	fmt.Println("ok", runtime.Version(), tag)
}

func compute(n int) {
	x := uint64(n)
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
	}
	runtime.KeepAlive(x)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func echo(n int) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go func() {
		served, err := listener.Accept()
		check(err)
		for buffer := make([]byte, 1); ; {
			if _, err := served.Read(buffer); err != nil {
				return
			}
			served.Write(buffer)
		}
	}()
	dialed, err := net.Dial("tcp", listener.Addr().String())
	check(err)
	for i := range n {
		_, err := dialed.Write([]byte{byte(i)})
		check(err)
		var got [1]byte
		_, err = dialed.Read(got[:])
		check(err)
		if got[0] != byte(i) {
			check(fmt.Errorf("%d came back as %d", i, got[0]))
		}
	}
	check(dialed.Close())
}

func timers() {
	for range 20 {
		time.Sleep(time.Millisecond)
	}
}

func locks() {
	var all sync.WaitGroup
	var plain sync.Mutex
	var shared sync.RWMutex
	count, copies := 0, map[int]int{}
	for range 8 {
		all.Go(func() {
			for i := range 2000 {
				plain.Lock()
				count++
				plain.Unlock()
				if i%100 == 0 {
					shared.Lock()
					copies[i]++
					shared.Unlock()
				}
				shared.RLock()
				_ = copies[0]
				shared.RUnlock()
			}
		})
	}
	all.Wait()
	if count != 8*2000 || copies[100] != 8 {
		check(fmt.Errorf("counts of %d and %d", count, copies[100]))
	}
}

// crowd starts n goroutines at once, which all compute and yield.
func crowd(n int) {
	done := make(chan int, n)
	for i := range n {
		go func() {
			compute(20_000)
			runtime.Gosched()
			compute(20_000)
			done <- i
		}()
	}
	sum := 0
	for range n {
		sum += <-done
	}
	if sum != n*(n-1)/2 {
		check(fmt.Errorf("a sum of %d", sum))
	}
}
