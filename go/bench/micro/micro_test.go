package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestChecksumsDoNotDependOnTheNumberOfGoroutines(t *testing.T) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			for _, goroutines := range []int{1, 3, 100} {
				if sum := p.run(goroutines); sum != p.checksum {
					t.Errorf("%d goroutines: %016x, want %016x", goroutines, sum, p.checksum)
				}
			}
		})
	}
}

// The checksums that can be derived without running the case.
func TestChecksumsMatchTheSameWorkDoneDifferently(t *testing.T) {
	var spawned uint64
	locked := sumTo(lockItems * lockings)
	for i := range uint64(32 * 100 * 200) {
		item, round, goroutine := i/20_000, i/200%100, i%200
		spawned += next(item<<32 + round<<16 + goroutine)
	}
	for name, want := range map[string]uint64{
		"mutex":             locked,
		"mutex-uncontended": locked,
		"rwmutex":           lockItems * lockings / 64 * 63 * 1000,
		"spawn":             spawned,
		"tcp-echo":          sumTo(echoes),
		"ticker":            sumTo(ticks),
	} {
		if p, err := find(name); err != nil || p.checksum != want {
			t.Errorf("%s: %016x, want %016x (%v)", name, p.checksum, want, err)
		}
	}
}

// sumTo adds up the numbers that follow 0 to n-1.
func sumTo(n uint64) (sum uint64) {
	for i := range n {
		sum += next(i)
	}
	return sum
}

func TestRoundsPrintOneLineEach(t *testing.T) {
	var out, errs bytes.Buffer
	if status := command([]string{"-case", "sort", "-goroutines", "2", "-rounds", "2"}, &out, &errs); status != 0 {
		t.Fatalf("status %d, %s", status, &errs)
	}
	sort, _ := find("sort")
	lines := json.NewDecoder(&out)
	for range 2 {
		var got line
		if err := lines.Decode(&got); err != nil {
			t.Fatal(err)
		}
		want := line{"sort", 2, got.Ns, got.CPUNs, fmt.Sprintf("%016x", sort.checksum)}
		if got != want || got.Ns <= 0 || got.CPUNs <= 0 {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if lines.More() {
		t.Error("there are more than two lines")
	}
}

func TestWrongChecksumIsAnError(t *testing.T) {
	lame := program{"lame", func(int) uint64 { return 1 }, 2}
	err := measure(lame, options{goroutines: 1, rounds: 1}, new(bytes.Buffer))
	if err == nil || err.Error() != "lame: the checksum is 0000000000000001, not 0000000000000002" {
		t.Error(err)
	}
}

func TestList(t *testing.T) {
	var out, errs bytes.Buffer
	status := command([]string{"-list"}, &out, &errs)
	want := "loop\nsort\nmatrix\nmap\njson\nchannel\nspawn\nmutex\nmutex-uncontended\nrwmutex\ntcp-echo\nticker\n"
	for _, p := range cgoPrograms {
		want += p.name + "\n"
	}
	if status != 0 || out.String() != want {
		t.Errorf("status %d, %q", status, &out)
	}
}

func TestWrongFlagsExitWith2(t *testing.T) {
	for want, args := range map[string][]string{
		`there is no case ""`:                   {},
		`there is no case "nap"; the cases are`: {"-case", "nap"},
		"-goroutines 0 is not from 1":           {"-case", "map", "-goroutines", "0"},
		"-rounds 0 is not at least 1":           {"-case", "map", "-rounds", "0"},
		`unexpected argument "map"`:             {"map"},
		"not defined: -nope":                    {"-nope"},
	} {
		var out, errs bytes.Buffer
		status := command(args, &out, &errs)
		if status != misuse || out.Len() > 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: status %d, %q, %q; want %q", args, status, &out, &errs, want)
		}
	}
	var out, errs bytes.Buffer
	if status := command([]string{"--help"}, &out, &errs); status != 0 || !strings.Contains(out.String(), "Examples:") {
		t.Errorf("help: status %d, %q", status, &out)
	}
}
