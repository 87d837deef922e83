package main

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// Children of a program, and the program it execs, have the slice and the timer slack that the
// program was started with, not those of Heddle's threads.
func TestChildrenInheritTheOriginalSlice(t *testing.T) {
	child := filepath.Join(t.TempDir(), "attributes")
	succeeds(t, nil, "go", "build", "-o", child, "./testdata/attributes")
	program := built(t, "./testdata/children")
	runtime.LockOSThread() // children inherit from this thread
	defer runtime.UnlockOSThread()
	for _, slice := range []uint64{0, 1500_000} {
		setSlice(t, slice)
		want := output(t, child)
		if strings.HasPrefix(want, "slice 0 ") {
			t.Skip("SKIPPED: this kernel has no slices (Linux 6.12 has)")
		}
		for _, policy := range []string{"", "aspen", "sysmon=event"} {
			t.Setenv("HEDDLE_GO", policy)
			if got := output(t, program, child); got != strings.Repeat(want, 6) {
				t.Errorf("HEDDLE_GO=%s: started with %sits children have\n%s", policy, want, got)
			}
		}
	}
}

// output is the output of a program started from the calling thread.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	text, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
	return string(text)
}

// setSlice sets the slice of the calling thread, in ns; 0: the kernel's default.
func setSlice(t *testing.T, ns uint64) {
	t.Helper()
	var attributes struct {
		size, policy              uint32
		flags                     uint64
		nice                      int32
		priority                  uint32
		runtime, deadline, period uint64
	}
	getattr, setattr := uintptr(315), uintptr(314)
	if runtime.GOARCH == "arm64" {
		getattr, setattr = 275, 274
	}
	size := unsafe.Sizeof(attributes)
	_, _, errno := syscall.Syscall6(getattr, 0, uintptr(unsafe.Pointer(&attributes)), size, 0, 0, 0)
	attributes.runtime = ns
	if errno == 0 {
		_, _, errno = syscall.Syscall(setattr, 0, uintptr(unsafe.Pointer(&attributes)), 0)
	}
	if errno != 0 {
		t.Skip("SKIPPED: the slice of a thread cannot be set: ", errno)
	}
}
