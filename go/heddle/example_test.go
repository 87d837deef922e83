package heddle_test

import (
	"expvar"
	"fmt"
	"log"
	"time"

	"github.com/heddle-sched/heddle/go/heddle"
)

// What the scheduler did during a piece of work.
func ExampleStats_Sub() {
	before := heddle.Stats{Preemptions: 3, Skips: 10}
	after := heddle.Stats{
		Preemptions: 5, Skips: 40, Ticks: 50,
		Waits: 2, Waited: 300 * time.Microsecond, LongestWait: 200 * time.Microsecond,
	}
	fmt.Println(after.Sub(before))
	// Output: 2 preemptions, 30 skips, 0 held, 0 forced; 2 waits (mean 150µs, longest 200µs, 0 aged), 50 ticks
}

// The counters among the program's other ones, at /debug/vars.
func ExampleRead() {
	expvar.Publish("heddle", expvar.Func(func() any { return heddle.Read() }))
}

// A report that is not urgent yields to requests at once.
func ExampleMark() {
	done := make(chan int)
	go func() {
		heddle.Mark(heddle.Batch)
		sum := 0
		for i := range 1000 {
			sum += i
		}
		done <- sum
	}()
	fmt.Println(<-done)
	// Output: 499500
}

// A program that prefers another quantum, if it was built for it.
func ExampleSetQuantum() {
	if heddle.Active() {
		if err := heddle.SetQuantum(50 * time.Microsecond); err != nil {
			log.Fatal(err)
		}
	}
}
