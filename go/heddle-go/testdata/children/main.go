// Command children starts the given program from threads that have run goroutines, and finally
// execs it.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

func main() {
	program := os.Args[1]
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { start(program) })
	}
	all.Wait()
	runtime.LockOSThread()
	likeMonitor()
	start(program)
	syscall.Exec("/nonexistent", nil, nil) // fails
	check(syscall.Exec(program, []string{program}, os.Environ()))
}

func start(program string) {
	output, err := exec.Command(program).CombinedOutput()
	fmt.Print(string(output))
	check(err)
}

// likeMonitor gives the thread sysmon's timer slack, which threads that sysmon starts inherit.
func likeMonitor() {
	const setTimerslack = 29
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setTimerslack, 1, 0)
	if errno != 0 {
		check(errno)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
