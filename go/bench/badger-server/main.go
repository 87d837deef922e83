// Command badger-server serves a dataset on BadgerDB, the application of Aspen's section 4.1.3: over the
// datagrams of Heddle's load generator with a goroutine a request, and over HTTP with a goroutine a
// connection. It is an ordinary Go program; only the runtime that it is built with differs in the bench.
//
// Invariants:
//
//	I1. Every datagram that is a request gets one answer; those beyond maxInFlight are dropped and counted.
//	I2. A request runs in one goroutine from its first to its last instruction.
//	I3. The process ends with its parent: a killed bench leaves no server behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/heddle-sched/heddle/go/bench/internal/kv"
)

// Exit statuses.
const (
	failed = 1
	misuse = 2
)

func main() {
	opts, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(help())
		return
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "badger-server: %v (see -help)\n", err)
		os.Exit(misuse)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx = untilOrphaned(ctx)
	if err := run(ctx, opts); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "badger-server: %v\n", err)
		os.Exit(failed)
	}
}

// run serves until ctx is done. The sockets are bound before the keys are loaded, so that a port
// in use is reported at once.
func run(ctx context.Context, opts options) error {
	srv, err := listen(opts)
	if err != nil {
		return err
	}
	srv.store, err = open(ctx, opts)
	if err != nil {
		return err
	}
	fmt.Println(srv.readyLine(opts.data.Keys))
	return srv.serve(ctx)
}

func open(ctx context.Context, opts options) (store *kv.Store, err error) {
	if opts.inMemory {
		store, err = kv.OpenInMemory(ctx, opts.data, report)
	} else {
		store, err = kv.Open(ctx, opts.dir, opts.data, report)
	}
	if err != nil {
		return nil, err
	}
	if err := store.Warm(); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	// Do not collect the garbage of loading while requests are measured.
	runtime.GC()
	return store, nil
}

func report(written uint64) {
	if written%1_000_000 == 0 || written < 1_000_000 && written%100_000 == 0 {
		fmt.Fprintf(os.Stderr, "badger-server: %d keys loaded\n", written)
	}
}

// untilOrphaned returns a ctx that ends with the parent process. It checks for the parent once a
// second, because the kernel's own signal (PR_SET_PDEATHSIG) comes as soon as the parent's thread
// that started us exits.
func untilOrphaned(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	go func() {
		defer cancel()
		for os.Getppid() == parent && ctx.Err() == nil {
			time.Sleep(time.Second)
		}
	}()
	return ctx
}
