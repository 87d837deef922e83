// Command active prints whether it runs under Heddle's scheduler, and what package heddle then
// does.
package main

import (
	"fmt"
	"time"

	"github.com/heddle-sched/heddle/go/heddle"
)

func main() {
	heddle.Mark(heddle.Batch)
	err := heddle.SetQuantum(50 * time.Microsecond)
	fmt.Println(heddle.Active(), heddle.Quantum(), err)
}
