package runtime

import "internal/bytealg"

// heddleStock is the stock runtime's forcePreemptNS and its interval between sysmon's network
// polls, in ns.
const heddleStock = 10 * 1000 * 1000

// heddleInit reads HEDDLE_GO, a comma-separated list like GODEBUG: a preset, then knobs. An
// unknown entry ends the program: a run under rules other than those requested is worse than none.
// In a library the process belongs to others, so there the whole list is ignored instead.
func heddleInit() {
	heddle.counts = &heddleUnseen
	heddlePreset("heddle")
	if !secureMode {
		heddleParse(gogetenv("HEDDLE_GO"))
	}
	if heddle.isRefused {
		heddlePreset("heddle")
	}
	if q := heddle.quantum.Load(); q != 0 && heddle.long < q {
		heddle.long = q
	}
	isTimer := heddle.mode == heddleTimer
	if isarchive || islibrary || debug.asyncpreemptoff != 0 {
		heddle.mode = min(heddle.mode, heddleEvent) // signals may not be ours
	}
	heddle.on = heddle.quantum.Load() != 0 || heddle.netpoll != heddleStock || heddle.twoQueue
	heddle.isAdaptive = heddle.on && isTimer
	heddle.enforcing.Store(heddle.on && !isTimer)
	if heddle.on {
		heddleRemember()
		heddlePublish()
	}
}

func heddleParse(list string) {
	list = heddleTrim(list)
	for isFirst := true; list != "" && !heddle.isRefused; isFirst = false {
		item := list
		if i := bytealg.IndexByteString(list, ','); i >= 0 {
			item, list = heddleTrim(item[:i]), heddleTrim(list[i+1:])
		} else {
			list = ""
		}
		i := bytealg.IndexByteString(item, '=')
		switch {
		case i >= 0:
			heddleKnob(item[:i], item[i+1:])
		case !isFirst || !heddlePreset(item):
			heddleReject(item, "a preset (heddle, aspen, off; first in the list) or a knob=value")
		}
	}
}

// heddleTrim returns text without surrounding white space.
func heddleTrim(text string) string {
	isSpace := func(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }
	for text != "" && isSpace(text[0]) {
		text = text[1:]
	}
	for text != "" && isSpace(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

// heddlePreset sets all knobs. Reports whether the preset exists.
func heddlePreset(name string) bool {
	on := name != "off"
	heddle.quantum.Store(0)
	heddle.netpoll = heddleStock
	heddle.long = heddleStock
	heddle.guard = 0
	if on {
		heddle.quantum.Store(100 * 1000)
		heddle.netpoll = 100 * 1000
		heddle.guard = 1000 * 1000
	}
	heddle.maxWait = 20 * 1000 * 1000
	heddle.twoQueue = name == "heddle"
	heddle.skip = name == "heddle"
	heddle.check = false
	heddle.mode = heddleSleep
	if name == "heddle" {
		heddle.mode = heddleTimer
	}
	return name == "heddle" || name == "aspen" || name == "off"
}

func heddleKnob(name, value string) {
	switch name {
	case "quantum":
		heddle.quantum.Store(heddleTime(name, value, 10*1000, heddleStock, 0))
	case "long":
		heddle.long = heddleTime(name, value, 10*1000, heddleStock, heddleStock)
	case "netpoll":
		heddle.netpoll = heddleTime(name, value, 10*1000, heddleStock, heddleStock)
	case "max-wait":
		heddle.maxWait = heddleTime(name, value, 100*1000, 60*1000*1000*1000, 0)
	case "two-queue":
		heddle.twoQueue = heddleSwitch(name, value)
	case "skip":
		heddle.skip = heddleSwitch(name, value)
	case "guard":
		heddle.guard = heddleTime(name, value, 10*1000, heddleStock, 0)
	case "check":
		heddle.check = heddleSwitch(name, value)
	case "sysmon":
		heddle.mode = heddleMode(value)
	default:
		heddleReject(name+"="+value, "one of quantum, long, netpoll, max-wait, two-queue, skip, guard, sysmon, check")
	}
}

func heddleSwitch(name, value string) bool {
	if value != "on" && value != "off" {
		heddleReject(name+"="+value, "on or off")
	}
	return value == "on"
}

func heddleMode(value string) uint8 {
	switch value {
	case "sleep":
		return heddleSleep
	case "spin":
		return heddleSpin
	case "event":
		return heddleEvent
	case "timer":
		return heddleTimer
	}
	heddleReject("sysmon="+value, "timer, event, sleep or spin")
	return heddleSleep
}

// heddleTime parses value, off or a time from least to most, in ns.
func heddleTime(name, value string, least, most, off int64) int64 {
	if value == "off" {
		return off
	}
	n, unit := int64(0), value
	for unit != "" && '0' <= unit[0] && unit[0] <= '9' && n < 1<<26 { // no overflow in seconds
		n = n*10 + int64(unit[0]-'0')
		unit = unit[1:]
	}
	switch unit {
	case "us":
		n *= 1000
	case "ms":
		n *= 1000 * 1000
	case "s":
		n *= 1000 * 1000 * 1000
	default:
		n = -1
	}
	if n < least || n > most {
		span := "from " + heddleUs(least) + " to " + heddleUs(most)
		heddleReject(name+"="+value, "off or a whole number of us, ms or s; "+span)
	}
	return n
}

func heddleUs(ns int64) string {
	var text [24]byte
	return string(itoa(text[:], uint64(ns/1000))) + "us"
}

// heddleReject prints what is invalid and what is expected. It returns only in a library.
func heddleReject(what, want string) {
	print("heddle: HEDDLE_GO: ", what, ": it must be ", want)
	if isarchive || islibrary {
		print("; the library ignores HEDDLE_GO and takes the defaults\n")
		heddle.isRefused = true
		return
	}
	print("\n")
	exit(2)
}
