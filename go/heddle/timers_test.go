//go:build heddle

package heddle_test

import (
	"io"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/heddle-sched/heddle/go/heddle"
)

func TestNoTicksWhileGoroutinesYieldSoon(t *testing.T) {
	plays(t, "relaxed", "heddle", "quantum=20us")
}

// relaxed keeps the P busy with goroutines that yield after some microseconds while the network is
// watched. Other programs may make one of them look longer, so it continues until it has seen a
// stretch without a tick.
func relaxed() {
	alone()
	client, server := connected()
	go func() { _, _ = io.Copy(struct{ io.Writer }{server}, struct{ io.Reader }{server}) }()
	for range 3 {
		go func() {
			for {
				runtime.Gosched()
			}
		}()
	}
	until(func() bool { return isWithoutTicks(func() { exchange(client, 2000) }) })
}

// isWithoutTicks reports whether no timer interrupts the body, and the runtime
// sets none.
func isWithoutTicks(body func()) bool {
	before := heddle.Read()
	body()
	s := heddle.Read().Sub(before)
	return s.Ticks == 0 && s.TimerCalls == 0
}

// exchange sends a byte the given number of times, and waits for it to come back.
func exchange(connection net.Conn, times int) {
	var message [1]byte
	for range times {
		_, err := connection.Write(message[:])
		require(err == nil, "%v", err)
		_, err = io.ReadFull(connection, message[:])
		require(err == nil, "%v", err)
	}
}

// connected returns both ends of a TCP connection.
func connected() (client, server net.Conn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require(err == nil, "%v", err)
	defer listener.Close()
	client, err = net.Dial("tcp", listener.Addr().String())
	require(err == nil, "%v", err)
	server, err = listener.Accept()
	require(err == nil, "%v", err)
	return client, server
}

func TestQuantaAreEnforcedWhileGoroutinesAreLong(t *testing.T) {
	plays(t, "enforced", "heddle", "quantum=20us")
}

// enforced alternates between rest and long goroutines, twice.
func enforced() {
	alone()
	for range 2 {
		before := heddle.Read()
		for heddle.Read().Sub(before).Ticks < 100 {
			interrupted(plain)
		}
		until(func() bool { return isWithoutTicks(func() { takeTurns(10_000) }) })
	}
}

// takeTurns runs two goroutines that yield to each other the given number of times.
func takeTurns(times int) {
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range times {
				runtime.Gosched()
			}
		})
	}
	all.Wait()
}
