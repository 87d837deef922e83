// Command heddle-go is the command go with a scheduler for low tail latency in the programs that
// it builds: see its --help.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/heddle-sched/heddle/go/overlay"
)

const help = `heddle-go builds Go programs with Heddle's scheduler in the Go runtime:
new goroutines run before preempted ones, the network is polled often, and a
goroutine is preempted after a configurable quantum if another one waits.
Neither programs nor the installed Go need changes.

Usage:
  heddle-go build|run|test|install|vet|list ARGS...   like go itself, with the scheduler
  heddle-go check [--json]     show whether the Go that builds here is supported
  heddle-go flags              print flags with which go itself does the same
  heddle-go help

The built programs read HEDDLE_GO when they start, a list like GODEBUG:
  heddle (default), aspen (Aspen-Go's policy) or off (like stock Go), then
  quantum=100us    how long a goroutine runs while new ones wait (off: 10ms)
  long=10ms        ... while only preempted ones wait
  netpoll=100us    how often the network is polled while all Ps are busy
  max-wait=20ms    wait after which a preempted goroutine runs before new ones
  two-queue=on     new goroutines before preempted ones
  skip=on          no preemption while no goroutine waits
  guard=1ms        how long after the quantum a goroutine that holds a
                   sync.Mutex or RWMutex keeps running (off: not at all)
  sysmon=timer     what detects the end of a slice: a timer per thread, or the
                   runtime's monitor, which waits for events including the
                   network's (event), sleeps (sleep), or spins (spin; uses a CPU)

Examples:
  heddle-go check
  heddle-go build -o server ./cmd/server
  HEDDLE_GO=quantum=200us,sysmon=sleep ./server
  HEDDLE_GO=off ./server
  heddle-go test -race ./...
  go build $(heddle-go flags) ./cmd/server

The cache folder is HEDDLE_GO_CACHE if set, otherwise heddle/go in the user's
cache (without a HOME, in go's own cache, GOCACHE).
`

// errUnsupported is the error of check after it has printed the reason.
var errUnsupported = errors.New("the toolchain is not supported")

// Exit statuses: those of go; 1: the toolchain is not supported (check); 2: the request is invalid
// or cannot be met.
func main() {
	switch err := run(os.Args[1:], os.Stdout); {
	case errors.Is(err, errUnsupported):
		os.Exit(1)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", called(), err)
		os.Exit(2)
	}
}

// called returns the name that the user typed: the command heddle runs this one as `heddle go` and
// sets the name accordingly.
func called() string {
	if len(os.Args) > 0 && os.Args[0] == "heddle go" {
		return os.Args[0]
	}
	return "heddle-go"
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("no command given: build, run, test, install, vet, list, check, flags or help")
	}
	switch args[0] {
	case "build", "run", "test", "install", "vet", "list":
		return runGo(args[0], args[1:])
	case "check":
		return check(args[1:], out)
	case "flags":
		return flags(args[1:], out)
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(out, strings.ReplaceAll(help, "heddle-go", called()))
		return err
	}
	return fmt.Errorf("%q is not a command of %s (build, run, test, install, vet, list, check, flags, help)",
		args[0], called())
}

// runGo replaces this process with go, so signals, the terminal and the exit status work as usual.
func runGo(name string, args []string) error {
	folder, args := overlay.TakeFolder(args)
	if folder != "" {
		if err := os.Chdir(folder); err != nil {
			return err
		}
	}
	made, err := overlay.Make()
	if err != nil {
		return err
	}
	command, err := made.Command(name, args...)
	if err != nil {
		return err
	}
	err = syscall.Exec(command.Path, command.Args, command.Environ())
	return fmt.Errorf("%s: %w", command.Path, err)
}

func flags(args []string, out io.Writer) error {
	if len(args) != 0 {
		return fmt.Errorf("flags takes no arguments: %q", args)
	}
	made, err := overlay.Make()
	if err != nil {
		return err
	}
	flags, err := made.Flags()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, strings.Join(flags, " "))
	return err
}

func check(args []string, out io.Writer) error {
	isJSON := len(args) == 1 && args[0] == "--json"
	if len(args) != 0 && !isJSON {
		return fmt.Errorf("check takes only --json: %q", args)
	}
	found, err := overlay.Check()
	if err != nil {
		return err
	}
	print := show
	if isJSON {
		print = showJSON
	}
	if err := print(found, out); err != nil {
		return err
	}
	if found.Support == "none" {
		return errUnsupported
	}
	return nil
}

func showJSON(f overlay.Finding, out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(f)
}

func show(f overlay.Finding, out io.Writer) error {
	if f.Support == "none" {
		_, err := fmt.Fprintf(out, "%s: %s\n", f.Goroot, f.Why)
		return err
	}
	_, err := fmt.Fprintf(out, "%s in %s: supported\n  %d edits match, %d files compile\n  build with: %s build\n",
		f.Version, f.Goroot, f.Edits, f.Files, called())
	return err
}
