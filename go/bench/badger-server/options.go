package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/heddle-sched/heddle/go/bench/internal/kv"
)

const usage = `Serve keys and values on BadgerDB, for the measurement of Go schedulers.

Usage: badger-server [-udp ADDR] [-http ADDR] (-dir DIR | -in-memory) [-keys N] [-value BYTES]

Flags:
%s
When ready, it prints one line: ready udp=ADDR http=ADDR keys=N (only the sockets in use). Exit status: 0 on
SIGTERM, on SIGINT, and when the parent process ends; 1 on failure; 2 for invalid flags.

Examples:
  badger-server -udp 127.0.0.1:7390 -http 127.0.0.1:7391 -dir /var/tmp/badger
  heddle kv load --target 127.0.0.1:7390 --rate 4000 --mix get=99,scan=1 --scan-len 4000 --keys 200000
  curl http://127.0.0.1:7391/get/42
  curl 'http://127.0.0.1:7391/scan/42?count=100'
`

// maxValue is the longest value that Badger keeps in its tables.
const maxValue = 1 << 20

// maxKeys is how many ids have distinct keys.
const maxKeys = 1_000_000_000_000

type options struct {
	udp, http string // empty: does not listen
	dir       string
	inMemory  bool
	data      kv.Dataset
}

func flags(o *options) *flag.FlagSet {
	f := flag.NewFlagSet("badger-server", flag.ContinueOnError)
	f.StringVar(&o.udp, "udp", "", "listen at `ADDR` (host:port) for datagrams; port 0 takes a free one")
	f.StringVar(&o.http, "http", "", "listen at `ADDR` (host:port) for HTTP; port 0 takes a free one")
	f.StringVar(&o.dir, "dir", "", "the database's `DIR`; loaded if missing or empty, otherwise used as it is")
	f.BoolVar(&o.inMemory, "in-memory", false, "keep the database in memory")
	f.Uint64Var(&o.data.Keys, "keys", 200_000, "the dataset has `N` keys, 0 to N-1")
	f.IntVar(&o.data.ValueSize, "value", 100, "the size of each value in `BYTES`")
	// Errors and help are printed by main, each to its own stream.
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

func parse(args []string) (o options, err error) {
	f := flags(&o)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, o.check()
}

func (o *options) check() error {
	switch {
	case o.udp == "" && o.http == "":
		return errors.New("nothing to listen on: give -udp or -http")
	case o.inMemory == (o.dir != ""):
		return errors.New("give one of -dir and -in-memory")
	case o.data.Keys < 1 || o.data.Keys > maxKeys:
		return fmt.Errorf("-keys %d is not from 1 to %d", o.data.Keys, uint64(maxKeys))
	case o.data.ValueSize < 1 || o.data.ValueSize > maxValue:
		return fmt.Errorf("-value %d is not from 1 to %d", o.data.ValueSize, maxValue)
	}
	return errors.Join(checkAddr("-udp", o.udp), checkAddr("-http", o.http))
}

func checkAddr(name, addr string) error {
	if addr == "" {
		return nil
	}
	if _, err := net.ResolveTCPAddr("tcp", addr); err != nil {
		return fmt.Errorf("%s %q is not host:port: %w", name, addr, err)
	}
	return nil
}
