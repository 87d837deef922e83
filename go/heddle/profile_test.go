//go:build heddle

package heddle_test

import (
	"os"
	"os/exec"
	"regexp"
	"runtime/pprof"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestProfilesDoNotShowPreemptions(t *testing.T) {
	plays(t, "profiled", "heddle", "aspen")
}

var results [4]uint64

//go:noinline
func compute(steps int) uint64 {
	x := uint64(steps)
	for range steps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// profiled profiles a second of CPU time in which goroutines that compute preempt each other. Both
// signals often come with one interrupt: a third and more of the samples used to be in
// asyncPreempt.
func profiled() {
	alone()
	file, err := os.CreateTemp("", "heddle-profile-")
	require(err == nil, "%v", err)
	defer os.Remove(file.Name())
	require(pprof.StartCPUProfile(file) == nil, "no profile")
	for end := cpuTime() + time.Second; cpuTime() < end; {
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() { results[n] = compute(20_000_000) })
		}
		all.Wait()
	}
	pprof.StopCPUProfile()
	pprofTop := exec.Command("go", "tool", "pprof", "-top", "-nodefraction=0", os.Args[0], file.Name())
	output, err := pprofTop.CombinedOutput()
	require(err == nil, "go tool pprof: %v\n%s", err, output)
	require(percent(output, `\S+\.compute`) > 0, "no samples:\n%s", output)
	require(percent(output, `runtime\.asyncPreempt`) <= 10, "too many samples are in asyncPreempt:\n%s", output)
}

// percent returns the flat share of the first function in pprof's list whose name matches, 0 if
// there is none.
func percent(list []byte, name string) float64 {
	found := regexp.MustCompile(`(?m)^ *\S+ +([0-9.]+)% .* ` + name + `$`).FindSubmatch(list)
	if found == nil {
		return 0
	}
	share, err := strconv.ParseFloat(string(found[1]), 64)
	require(err == nil, "%v", err)
	return share
}

func cpuTime() time.Duration {
	var used syscall.Rusage
	require(syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil, "getrusage")
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
