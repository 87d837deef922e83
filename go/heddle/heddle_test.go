package heddle_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/heddle-sched/heddle/go/heddle"
)

func TestQuantaOutOfRangeAreRefused(t *testing.T) {
	before := heddle.Quantum()
	for _, d := range []time.Duration{-1, 1, heddle.MinQuantum - 1, heddle.MaxQuantum + 1} {
		err := heddle.SetQuantum(d)
		if err == nil || errors.Is(err, heddle.ErrInactive) {
			t.Errorf("SetQuantum(%v): %v", d, err)
		} else if !strings.Contains(err.Error(), "10µs to 10ms") {
			t.Errorf("the error does not name the range: %v", err)
		}
	}
	if heddle.Quantum() != before {
		t.Errorf("the quantum is %v, was %v", heddle.Quantum(), before)
	}
}

func TestQuantumIsSetIfActive(t *testing.T) {
	before := heddle.Quantum()
	for _, d := range []time.Duration{heddle.MinQuantum, heddle.MaxQuantum, 0, before} {
		err := heddle.SetQuantum(d)
		if !heddle.Active() {
			if !errors.Is(err, heddle.ErrInactive) || heddle.Quantum() != 0 {
				t.Errorf("inactive: SetQuantum(%v): %v, the quantum is %v", d, err, heddle.Quantum())
			}
		} else if err != nil || heddle.Quantum() != d {
			t.Errorf("SetQuantum(%v): %v, the quantum is %v", d, err, heddle.Quantum())
		}
	}
}

func TestMarkKnowsItsClasses(t *testing.T) {
	for _, c := range []heddle.Class{heddle.Batch, heddle.LatencyCritical, heddle.Normal} {
		heddle.Mark(c)
	}
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "Class(3)") {
			t.Errorf("Mark(3): panic %q", text)
		}
	}()
	heddle.Mark(heddle.Batch + 1)
}

var some = heddle.Stats{
	Preemptions: 10, Skips: 9, Held: 8, Forced: 7,
	Waits: 6, Waited: 5 * time.Millisecond, LongestWait: 4 * time.Millisecond, Aged: 3, Ticks: 2, TimerCalls: 1,
}

func TestSubKeepsTheLongestWait(t *testing.T) {
	if since := some.Sub(some); since != (heddle.Stats{LongestWait: some.LongestWait}) {
		t.Errorf("%+v", since)
	}
	if since := some.Sub(heddle.Stats{}); since != some {
		t.Errorf("%+v", since)
	}
}

func TestMeanWaitOfNone(t *testing.T) {
	if mean := (heddle.Stats{}).MeanWait(); mean != 0 {
		t.Errorf("%v", mean)
	}
	if mean := (heddle.Stats{Waits: 2, Waited: 10}).MeanWait(); mean != 5 {
		t.Errorf("%v", mean)
	}
}

func TestStatsSurviveJSON(t *testing.T) {
	text, err := json.Marshal(some)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"waited_ns":5000000`) {
		t.Errorf("%s", text)
	}
	var back heddle.Stats
	if err := json.Unmarshal(text, &back); err != nil || back != some {
		t.Errorf("%v, %+v", err, back)
	}
}
