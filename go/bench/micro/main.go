// Command micro runs small programs, to measure what a runtime's scheduler costs them: the method
// of Aspen's appendix B, with several goroutines of one program on one processor. Each case does
// the same work for any number of goroutines, as its checksum shows.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

const usage = `Run a small program and print its duration and CPU time.

Usage: micro -case NAME [-goroutines N] [-rounds N]
       micro -list

Flags:
%s
Each round prints one line: {"case":"sort","goroutines":4,"ns":319618560,"cpu_ns":319107000,"checksum":"6b4e..."}. Exit
status: 1, a checksum is wrong; 2, invalid flags. GOMAXPROCS sets how many threads run Go code.

Examples:
  GOMAXPROCS=1 micro -case sort -goroutines 4 -rounds 5
  for name in $(micro -list); do GOMAXPROCS=1 micro -case $name; done
`

// Exit statuses.
const (
	failed = 1
	misuse = 2
)

const maxGoroutines = 10_000

type options struct {
	name               string
	goroutines, rounds int
	list               bool
}

// line is what a round prints.
type line struct {
	Case       string `json:"case"`
	Goroutines int    `json:"goroutines"`
	Ns         int64  `json:"ns"`
	CPUNs      int64  `json:"cpu_ns"`   // of all threads
	Checksum   string `json:"checksum"` // in base 16: JSON's numbers hold 53 bits only
}

func main() {
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

func command(args []string, out, errs io.Writer) int {
	opts, chosen, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, help())
		return 0
	case err != nil:
		fmt.Fprintf(errs, "micro: %v (see -help)\n", err)
		return misuse
	case opts.list:
		fmt.Fprintln(out, strings.Join(names(), "\n"))
		return 0
	}
	if err := measure(chosen, opts, out); err != nil {
		fmt.Fprintf(errs, "micro: %v\n", err)
		return failed
	}
	return 0
}

func measure(c program, opts options, out io.Writer) error {
	for range opts.rounds {
		start, cpu := time.Now(), cpuTime()
		sum := c.run(opts.goroutines)
		took, used := time.Since(start), cpuTime()-cpu
		if sum != c.checksum {
			return fmt.Errorf("%s: the checksum is %016x, not %016x", c.name, sum, c.checksum)
		}
		l := line{c.name, opts.goroutines, took.Nanoseconds(), used.Nanoseconds(), fmt.Sprintf("%016x", sum)}
		if err := json.NewEncoder(out).Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// cpuTime returns the CPU time of the process, in user space and in the kernel.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // impossible: the arguments are right
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func flags(o *options) *flag.FlagSet {
	f := flag.NewFlagSet("micro", flag.ContinueOnError)
	f.StringVar(&o.name, "case", "", "the `NAME` of the program")
	f.IntVar(&o.goroutines, "goroutines", 4, "share the work among `N` goroutines")
	f.IntVar(&o.rounds, "rounds", 1, "run `N` times")
	f.BoolVar(&o.list, "list", false, "print the names of the programs")
	// Errors and help are printed by command, each to its own stream.
	f.SetOutput(io.Discard)
	return f
}

func help() string {
	var list strings.Builder
	f := flags(new(options))
	f.SetOutput(&list)
	f.PrintDefaults()
	return fmt.Sprintf(usage, list.String())
}

func parse(args []string) (o options, c program, err error) {
	f := flags(&o)
	if err := f.Parse(args); err != nil {
		return o, c, err
	}
	switch {
	case f.NArg() > 0:
		return o, c, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.list:
		return o, c, nil
	case o.goroutines < 1 || o.goroutines > maxGoroutines:
		return o, c, fmt.Errorf("-goroutines %d is not from 1 to %d", o.goroutines, maxGoroutines)
	case o.rounds < 1:
		return o, c, fmt.Errorf("-rounds %d is not at least 1", o.rounds)
	}
	c, err = find(o.name)
	return o, c, err
}
