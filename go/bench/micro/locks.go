package main

import "sync"

// lockItems are distributed over the goroutines, each of lockings critical sections.
const lockItems, lockings = 64, 240_000

// mutex adds to one sum under one lock. Goroutines that are preempted while they hold it make all
// others wait, which this case must show.
func mutex(goroutines int) uint64 {
	var lock sync.Mutex
	var sum uint64
	deal(lockItems, goroutines, func(id uint64) uint64 {
		for i := range uint64(lockings) {
			lock.Lock()
			sum += next(id*lockings + i)
			lock.Unlock()
		}
		return 0
	})
	return sum
}

// rwMutex reads a pair whose sum never changes, and once in 64 times moves part of one half to the
// other: a reader that saw a write in progress would change the checksum.
func rwMutex(goroutines int) uint64 {
	const perWrite = 64
	var lock sync.RWMutex
	a, b := uint64(1000), uint64(0)
	return deal(lockItems, goroutines, func(id uint64) (sum uint64) {
		for i := range uint64(lockings) {
			if i%perWrite == 0 {
				lock.Lock()
				a, b = a-id, b+id
				lock.Unlock()
				continue
			}
			lock.RLock()
			sum += a + b
			lock.RUnlock()
		}
		return sum
	})
}
