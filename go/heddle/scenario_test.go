//go:build heddle

package heddle_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"
)

// HEDDLE_GO is read when a program starts, so the scheduler is tested in separate processes: this
// test's program again, with the name of a scenario in its environment. Nothing here compares
// times: a scenario orders events by counters, and continues until it has seen what it expects.
var scenarios = map[string]func(){
	"age":         age,
	"urgent":      urgent,
	"aspen":       aspen,
	"batch":       batch,
	"children":    children,
	"critical":    critical,
	"guarded":     guarded,
	"unguarded":   unguarded,
	"handed over": handedOver,
	"bounded":     bounded,
	"lone":        lone,
	"off":         off,
	"order":       order,
	"overtaken":   overtaken,
	"quantum":     changeQuantum,
	"enforced":    enforced,
	"relaxed":     relaxed,
	"profiled":    profiled,
	"reuse":       reuse,
	"stress":      stress,
	"traced":      traced,
	"world":       stopWorld,
	"yield":       yield,
	"no yield":    noYield,
	"yield first": yieldFirst,
}

// scenarioName is the environment variable with the name of the scenario to run.
const scenarioName = "HEDDLE_TEST_SCENARIO"

func TestMain(m *testing.M) {
	if name := os.Getenv(scenarioName); name != "" {
		scenarios[name]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// hangs is after how long a scenario counts as stuck. Its goroutines are printed then.
const hangs = 3 * time.Minute

// play runs a scenario under HEDDLE_GO=knobs.
func play(t *testing.T, name, knobs string) {
	t.Helper()
	playAfter(t, "", name, knobs)
}

// playAfter is play in a process that a shell has prepared.
func playAfter(t *testing.T, prepared, name, knobs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", prepared+` exec "$0"`, os.Args[0])
	command.Env = append(os.Environ(), scenarioName+"="+name, "HEDDLE_GO="+knobs, "GOTRACEBACK=all")
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGQUIT) }
	command.WaitDelay = 10 * time.Second
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("scenario %q under HEDDLE_GO=%s: %v\n%s", name, knobs, err, head(output))
	}
}

func head(text []byte) []byte {
	return text[:min(len(text), 20_000)]
}

// plays tests one scenario with several settings.
func plays(t *testing.T, name string, settings ...string) {
	for _, knobs := range settings {
		t.Run(knobs, func(t *testing.T) { play(t, name, knobs) })
	}
}

// require ends the scenario with an error if a condition does not hold.
func require(isSo bool, format string, args ...any) {
	if !isSo {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
		os.Exit(1)
	}
}

// alone leaves one P, and no garbage collector that would stop it.
func alone() {
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(1)
}

// spin keeps the P for a while.
func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

// until spins until a condition holds, without releasing the P.
func until(isSo func() bool) {
	for !isSo() {
	}
}
