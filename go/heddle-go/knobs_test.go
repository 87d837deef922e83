package main

import (
	"path/filepath"
	"testing"
)

// built builds a package with the tool and returns the program.
func built(t *testing.T, pkg string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	succeeds(t, nil, tool, append(append([]string{"build", "-o", program}, flags...), pkg)...)
	return program
}

func TestInvalidValuesEndTheProgram(t *testing.T) {
	program := built(t, "./testdata/knobs")
	const times = "off or a whole number of us, ms or s; from "
	const knobs = "one of quantum, long, netpoll, max-wait, two-queue, skip, guard, sysmon, check"
	const presets = "a preset (heddle, aspen, off; first in the list) or a knob=value"
	for _, test := range []struct{ value, what, want string }{
		{"quantum=", "quantum=", times + "10us to 10000us"},
		{"quantum=100", "quantum=100", times + "10us to 10000us"},
		{"quantum=us", "quantum=us", times + "10us to 10000us"},
		{"quantum=9us", "quantum=9us", times + "10us to 10000us"},
		{"quantum=11ms", "quantum=11ms", times + "10us to 10000us"},
		{"quantum=-20us", "quantum=-20us", times + "10us to 10000us"},
		{"quantum=1.5ms", "quantum=1.5ms", times + "10us to 10000us"},
		{"quantum=20 us", "quantum=20 us", times + "10us to 10000us"},
		{"quantum=100000ns", "quantum=100000ns", times + "10us to 10000us"},
		{"quantum=99999999999999999999us", "quantum=99999999999999999999us", times + "10us to 10000us"},
		{"quantum=on", "quantum=on", times + "10us to 10000us"},
		{"long=1us", "long=1us", times + "10us to 10000us"},
		{"netpoll=1s", "netpoll=1s", times + "10us to 10000us"},
		{"max-wait=99us", "max-wait=99us", times + "100us to 60000000us"},
		{"max-wait=61s", "max-wait=61s", times + "100us to 60000000us"},
		// 290 ms modulo 2^64
		{"max-wait=18446744074s", "max-wait=18446744074s", times + "100us to 60000000us"},
		{"two-queue=yes", "two-queue=yes", "on or off"},
		{"skip=", "skip=", "on or off"},
		{"guard=on", "guard=on", times + "10us to 10000us"},
		{"check=true", "check=true", "on or off"},
		{"sysmon=wait", "sysmon=wait", "timer, event, sleep or spin"},
		{"quantums=100us", "quantums=100us", knobs},
		{"=", "=", knobs},
		{"Heddle", "Heddle", presets},
		{"quantum", "quantum", presets},
		{"o ff", "o ff", presets},
		{" ,quantum=50us", "", presets},
		{"quantum =50us", "quantum =50us", knobs},
		{"off,aspen", "aspen", presets},
		{"quantum=50us,off", "off", presets},
		{",quantum=50us", "", presets},
		{"quantum=50us,,skip=on", "", presets},
		{"aspen,quantum=50us,skip=maybe", "skip=maybe", "on or off"},
	} {
		r := runWith(t, []string{"HEDDLE_GO=" + test.value}, program)
		want := "heddle: HEDDLE_GO: " + test.what + ": it must be " + test.want + "\n"
		if r.status != 2 || r.out != "" || r.errors != want {
			t.Errorf("HEDDLE_GO=%q: %v", test.value, r)
		}
	}
}

func TestValidValuesAreAccepted(t *testing.T) {
	program := built(t, "./testdata/knobs")
	for _, value := range []string{
		"", "heddle", "aspen", "off", "off,quantum=100us",
		"quantum=10us", "quantum=10ms", "quantum=off", "quantum=0050us",
		"long=off", "long=10000us", "netpoll=off", "max-wait=off", "max-wait=60s", "max-wait=60000000us",
		"heddle,two-queue=off,skip=off,guard=off", "aspen,two-queue=on,skip=on,guard=200us", "check=on",
		"sysmon=spin", "sysmon=timer", "sysmon=event", "sysmon=sleep", "quantum=50us,quantum=100us", "quantum=100us,",
		" ", " off ", "aspen, quantum=50us", "off ,\tquantum=100us , skip=on", "quantum=100us, ", "\nquantum=100us\r\n",
	} {
		if r := runWith(t, []string{"HEDDLE_GO=" + value}, program); r.status != 0 || r.out+r.errors != "" {
			t.Errorf("HEDDLE_GO=%q: %v", value, r)
		}
	}
}
