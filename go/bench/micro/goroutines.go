package main

import (
	"sync"
	"sync/atomic"
)

// pingPong passes a number to another goroutine and back.
func pingPong(id uint64) uint64 {
	const trips = 16_000
	there, back := make(chan uint64), make(chan uint64)
	go func() {
		defer close(back)
		for ball := range there {
			back <- next(ball)
		}
	}()
	ball := seeded(id)
	for range trips {
		there <- ball
		ball = <-back
	}
	close(there)
	<-back
	return ball
}

// spawn starts goroutines that do almost nothing, and waits for them.
func spawn(id uint64) uint64 {
	const rounds, goroutines = 100, 200
	var sum atomic.Uint64
	for round := range uint64(rounds) {
		var all sync.WaitGroup
		for g := range uint64(goroutines) {
			all.Add(1)
			go func() {
				defer all.Done()
				sum.Add(next(id<<32 + round<<16 + g))
			}()
		}
		all.Wait()
	}
	return sum.Load()
}
