package main

import (
	"fmt"
	"strings"
	"sync"
)

// program is one case. Its work is cut into items, each with its own checksum; their sum is the
// checksum of the case, in any order and for any number of goroutines.
type program struct {
	name     string
	run      func(goroutines int) (checksum uint64)
	checksum uint64
}

// programs are in the order in which they are listed. Each takes 150 to 300 ms with four
// goroutines on one processor of the machine on which Heddle is built.
var programs = append([]program{
	{"loop", each(64, loop), 0xbcd1fe713c9e804b},
	{"sort", each(32, sortNumbers), 0x6b4e9286b555e067},
	{"matrix", each(64, matrixRows), 0x000008e9632b3879},
	{"map", each(96, mapEntries), 0x0000000783f37d65},
	{"json", each(32, jsonRecords), 0x461aae0048e239e6},
	{"channel", pairs(32, pingPong), 0x7526eaa8d9388c72},
	{"spawn", each(32, spawn), 0x5d7e8cc890106600},
	{"mutex", mutex, 0x2203aa8002499000},
	{"mutex-uncontended", func(int) uint64 { return mutex(1) }, 0x2203aa8002499000},
	{"rwmutex", rwMutex, 0x000000038538e400},
	{"tcp-echo", echo, 0x6137efb3e861eb80},
	{"ticker", ticker, 0xa8c63b7368dbfa4d},
}, cgoPrograms...)

func names() (list []string) {
	for _, p := range programs {
		list = append(list, p.name)
	}
	return list
}

func find(name string) (program, error) {
	for _, p := range programs {
		if p.name == name {
			return p, nil
		}
	}
	return program{}, fmt.Errorf("there is no case %q; the cases are %s", name, strings.Join(names(), ", "))
}

// each distributes items 0 to n over the goroutines in turn.
func each(n int, item func(id uint64) uint64) func(goroutines int) uint64 {
	return func(goroutines int) uint64 { return deal(n, goroutines, item) }
}

// pairs is each for items that need a second goroutine, so that there are no more than requested.
func pairs(n int, item func(id uint64) uint64) func(goroutines int) uint64 {
	return func(goroutines int) uint64 { return deal(n, max(1, goroutines/2), item) }
}

// deal distributes the items and adds up their checksums.
func deal(n, goroutines int, item func(id uint64) uint64) (checksum uint64) {
	sums := make([]uint64, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			// A local sum in a register: neighbours in the slice would share a cache line.
			var sum uint64
			for id := g; id < n; id += goroutines {
				sum += item(uint64(id))
			}
			sums[g] = sum
		})
	}
	all.Wait()
	for _, sum := range sums {
		checksum += sum
	}
	return checksum
}

// next is xorshift64*: a stream of numbers that differs from seed to seed.
func next(state uint64) uint64 {
	state ^= state >> 12
	state ^= state << 25
	state ^= state >> 27
	return state * 0x2545_f491_4f6c_dd1d
}

// seeded returns item id's first number, which is never 0: xorshift would stay there.
func seeded(id uint64) uint64 { return next(id*2 + 1) }
