//go:build cgo

package main

import "testing"

func TestChecksumsOfCMatchThoseOfGo(t *testing.T) {
	var spawned uint64
	for i := range uint64(32 * 200 * 100) {
		item, round, goroutine := i/20_000, i/100%200, i%100
		spawned += next(item<<32 + round<<16 + goroutine)
	}
	for name, want := range map[string]uint64{"cgo-spawn": spawned, "cgo-yield": sumTo(64 * cgoYields)} {
		if p, err := find(name); err != nil || p.checksum != want {
			t.Errorf("%s: %016x, want %016x (%v)", name, p.checksum, want, err)
		}
	}
}
