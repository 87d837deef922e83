//go:build heddle

package heddle_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heddle-sched/heddle/go/heddle"
)

// pageIsWanted says, to a process that a test has started, whether it must have a page.
const pageIsWanted = "HEDDLE_TEST_PAGE"

// readPage returns the bytes of this process's page, nil if it has none.
func readPage(t *testing.T) []byte {
	entries, err := filepath.Glob("/proc/self/fd/*")
	require(err == nil, "the folder of descriptors")
	for _, entry := range entries {
		name, _ := os.Readlink(entry)
		if strings.HasPrefix(name, fmt.Sprintf("/memfd:heddle:%d ", os.Getpid())) {
			bytes, err := os.ReadFile(entry)
			if err != nil {
				t.Fatal(err)
			}
			return bytes
		}
	}
	return nil
}

// shownOn returns the labels of a page and its counters by name, by the rules of
// crates/telemetry/src/layout.rs.
func shownOn(page []byte) (string, map[string]uint64) {
	number := func(at int) int { return int(binary.LittleEndian.Uint32(page[at:])) }
	after := func(at, bytes int) int { return (at + bytes + 127) / 128 * 128 }
	count, shown := number(36), map[string]uint64{}
	texts := after(256, 32*count)
	counters := after(texts, number(52))
	text := func(at int) string { return string(page[texts+number(at):][:number(at+4)]) }
	for i := range count {
		if entry := 256 + 32*i; number(entry) != 0 {
			shown[text(entry+8)] = binary.LittleEndian.Uint64(page[counters+8*i:])
		}
	}
	return text(56), shown
}

func TestPageShowsTheCounters(t *testing.T) {
	if os.Getenv(pageIsWanted) == "no" {
		require(readPage(t) == nil, "there is a page")
		return
	}
	before := heddle.Read()
	page := readPage(t)
	require(page != nil, "there is no page")
	labels, shown := shownOn(page)
	after := heddle.Read()
	require(string(page[:8]) == "HEDDLEPG", "the page is finished")
	if labels != "layer=go,policy=two-queue" {
		t.Error("labels:", labels)
	}
	pairs := map[string][2]uint64{
		"preemptions_total":    {before.Preemptions, after.Preemptions},
		"skips_total":          {before.Skips, after.Skips},
		"held_total":           {before.Held, after.Held},
		"forced_total":         {before.Forced, after.Forced},
		"waits_total":          {before.Waits, after.Waits},
		"waited_seconds_total": {uint64(before.Waited), uint64(after.Waited)},
		"aged_total":           {before.Aged, after.Aged},
		"ticks_total":          {before.Ticks, after.Ticks},
		"timer_calls_total":    {before.TimerCalls, after.TimerCalls},
	}
	for name, pair := range pairs {
		value, isShown := shown["heddle_go_"+name]
		if !isShown || value < pair[0] || value > pair[1] {
			t.Errorf("%s is %d (%v); Read returned %v", name, value, isShown, pair)
		}
	}
	if len(shown) != len(pairs) {
		t.Errorf("shown: %v", shown)
	}
}

func TestPageIsTurnedOff(t *testing.T) {
	for _, setting := range []string{"HEDDLE_TELEMETRY=off", "HEDDLE_GO=off"} {
		command := exec.Command(os.Args[0], "-test.run=^TestPageShowsTheCounters$")
		command.Env = append(os.Environ(), setting, pageIsWanted+"=no")
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", setting, err, output)
		}
	}
}
