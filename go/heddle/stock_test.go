//go:build !heddle

package heddle_test

import (
	"testing"

	"github.com/heddle-sched/heddle/go/heddle"
)

func TestNothingIsCountedByAStockToolchain(t *testing.T) {
	if heddle.Active() || heddle.Quantum() != 0 || heddle.Read() != (heddle.Stats{}) {
		t.Errorf("active %v, quantum %v, %v", heddle.Active(), heddle.Quantum(), heddle.Read())
	}
}
