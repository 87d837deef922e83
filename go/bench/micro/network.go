package main

import (
	"encoding/binary"
	"io"
	"net"
	"time"
)

// echoes are distributed over the connections, one in flight on each: the processor is always
// busy.
const echoes = 32_000

// echo sends numbers over TCP to a server that sends them back. A failure leaves the checksum wrong.
func echo(goroutines int) uint64 {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	defer listener.Close()
	go serve(listener)
	address := listener.Addr().String()
	return deal(goroutines, goroutines, func(id uint64) uint64 { return exchange(address, id, uint64(goroutines)) })
}

func serve(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer connection.Close()
			// Hide the methods by which io.Copy leaves the copying to the kernel.
			_, _ = io.Copy(struct{ io.Writer }{connection}, struct{ io.Reader }{connection})
		}()
	}
}

// exchange sends every n-th number, from first.
func exchange(address string, first, n uint64) (sum uint64) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return 0
	}
	defer connection.Close()
	var message [8]byte
	for i := first; i < echoes; i += n {
		binary.LittleEndian.PutUint64(message[:], next(i))
		if _, err := connection.Write(message[:]); err != nil {
			return 0
		}
		if _, err := io.ReadFull(connection, message[:]); err != nil {
			return 0
		}
		sum += binary.LittleEndian.Uint64(message[:])
	}
	return sum
}

// ticks is how long the case takes, in ms.
const ticks = 250

// ticker does almost nothing every millisecond: the CPU time is the runtime's.
func ticker(int) (sum uint64) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range uint64(ticks) {
		<-tick.C
		sum += next(i)
	}
	return sum
}
