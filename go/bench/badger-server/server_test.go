package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/heddle-sched/heddle/go/bench/internal/kv"
	"github.com/heddle-sched/heddle/go/bench/internal/wire"
)

// patience guards against a hang; it measures nothing.
const patience = 30 * time.Second

const testKeys = 1000

// started serves a dataset in this process until the test ends; the server must end without an
// error.
func started(t *testing.T) *server {
	t.Helper()
	s, err := listen(options{udp: "127.0.0.1:0", http: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	data := kv.Dataset{Keys: testKeys, ValueSize: 100}
	s.store, err = kv.OpenInMemory(t.Context(), data, func(uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return s
}

func dial(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	conn, err := net.Dial("udp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func send(t *testing.T, conn net.Conn, datagram []byte) {
	t.Helper()
	if _, err := conn.Write(datagram); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, conn net.Conn) (response wire.Response) {
	t.Helper()
	buffer := make([]byte, wire.ResponseLen+1)
	n, err := conn.Read(buffer)
	if err == nil {
		err = response.Decode(buffer[:n])
	}
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func ask(t *testing.T, conn net.Conn, request wire.Request) wire.Response {
	t.Helper()
	send(t, conn, request.Append(nil))
	response := receive(t, conn)
	if response.ID != request.ID || response.Sent != request.Sent || response.Op != request.Op {
		t.Errorf("%+v is not the answer to %+v", response, request)
	}
	return response
}

func TestDatagrams(t *testing.T) {
	conn := dial(t, started(t).udp.LocalAddr())
	value := []byte("weft")
	for id, c := range []struct {
		request wire.Request
		want    wire.Response // except echoed fields and times
	}{
		{wire.Request{Op: wire.Ping}, wire.Response{}},
		{
			wire.Request{Op: wire.Get, KeyID: 42},
			wire.Response{Count: 1, Bytes: 100, Digest: 0x0327cffb},
		},
		{
			wire.Request{Op: wire.Get, Key: []byte("key:000000000042")},
			wire.Response{Count: 1, Bytes: 100, Digest: 0x0327cffb},
		},
		{wire.Request{Op: wire.Get, KeyID: testKeys}, wire.Response{Status: wire.NotFound}},
		{
			wire.Request{Op: wire.Scan, KeyID: 42, Count: 100},
			wire.Response{Count: 100, Bytes: 10_000, Digest: 0x0d9ea706},
		},
		{wire.Request{Op: wire.Scan, KeyID: testKeys, Count: 100}, wire.Response{}},
		{wire.Request{Op: wire.Scan, Count: maxRange + 1}, wire.Response{Status: wire.Refused}},
		{wire.Request{Op: wire.Get, Key: make([]byte, maxKey+1)}, wire.Response{Status: wire.Refused}},
		{wire.Request{Op: wire.Get, Key: []byte{}}, wire.Response{Status: wire.StoreError}},
		{wire.Request{Op: wire.Put, KeyID: testKeys, Value: value}, wire.Response{Bytes: 4}},
		{
			wire.Request{Op: wire.Get, KeyID: testKeys},
			wire.Response{Count: 1, Bytes: 4, Digest: wire.Digest(0, value)},
		},
	} {
		c.request.ID, c.request.Sent = uint64(id), uint64(id)<<32
		got := ask(t, conn, c.request)
		if got.Service <= 0 {
			t.Errorf("%+v took no time", got)
		}
		c.want.Op, c.want.ID, c.want.Sent = c.request.Op, c.request.ID, c.request.Sent
		c.want.Service, c.want.Queued = got.Service, got.Queued
		if got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}

func TestWrongDatagramsAreCountedAndNotAnswered(t *testing.T) {
	s := started(t)
	conn := dial(t, s.udp.LocalAddr())
	ping := wire.Request{Op: wire.Ping, ID: 7}
	wrong := [][]byte{nil, []byte("H"), ping.Append(nil)[:wire.RequestHeader-1], make([]byte, 60_000)}
	for _, datagram := range wrong {
		send(t, conn, datagram)
	}
	// The first and only answer is the ping's.
	ask(t, conn, ping)
	for deadline := time.Now().Add(patience); s.malformed.Load() != uint64(len(wrong)); {
		if time.Now().After(deadline) {
			t.Fatalf("%d were counted, want %d", s.malformed.Load(), len(wrong))
		}
		time.Sleep(time.Millisecond)
	}
	var report strings.Builder
	s.report(&report)
	if want := "badger-server: 4 datagrams were not of the protocol\n"; report.String() != want {
		t.Errorf("%q, want %q", report.String(), want)
	}
}

func TestManyClientsAtOnce(t *testing.T) {
	addr := started(t).udp.LocalAddr()
	done := make(chan struct{})
	for client := range uint64(8) {
		conn := dial(t, addr)
		go func() {
			defer func() { done <- struct{}{} }()
			for id := range uint64(500) {
				request := wire.Request{Op: wire.Scan, ID: client<<32 | id, KeyID: id, Count: uint32(id % 8)}
				if _, err := conn.Write(request.Append(nil)); err != nil {
					t.Error(err)
					return
				}
				buffer, answer := make([]byte, wire.ResponseLen), wire.Response{}
				_, err := io.ReadFull(conn, buffer)
				if err == nil {
					err = answer.Decode(buffer)
				}
				if err != nil || answer.ID != request.ID || answer.Count != request.Count {
					t.Errorf("%+v for %+v (%v)", answer, request, err)
					return
				}
			}
		}()
	}
	for range 8 {
		<-done
	}
}

func TestTooManyInFlightAreDroppedAndCounted(t *testing.T) {
	s := started(t)
	conn := dial(t, s.udp.LocalAddr())
	s.inFlight.Add(maxInFlight)
	send(t, conn, (&wire.Request{Op: wire.Ping, ID: 1}).Append(nil))
	for deadline := time.Now().Add(patience); s.dropped.Load() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("nothing was dropped")
		}
		time.Sleep(time.Millisecond)
	}
	s.inFlight.Add(-maxInFlight)
	ask(t, conn, wire.Request{Op: wire.Ping, ID: 2})
}

func TestHTTP(t *testing.T) {
	s := started(t)
	client := http.Client{Timeout: patience}
	for _, c := range []struct {
		path   string
		status int
		body   string
	}{
		{"/ping", 200, "pong\n"},
		{"/get/42", 200, "bytes=100 digest=0327cffb\n"},
		{"/get/1000", 404, "key:000000001000 does not exist\n"},
		{"/get/x", 400, "\"x\" is not a key id, a number from 0\n"},
		{"/get/-1", 400, "\"-1\" is not a key id, a number from 0\n"},
		{"/scan/42?count=100", 200, "keys=100 bytes=10000 digest=0d9ea706\n"},
		{"/scan/1000?count=5", 200, "keys=0 bytes=0 digest=00000000\n"},
		{"/scan/42", 400, "count=\"\" is not a number from 0 to 1000000\n"},
		{"/scan/42?count=1000001", 400, "count=\"1000001\" is not a number from 0 to 1000000\n"},
		{"/nowhere", 404, "404 page not found\n"},
	} {
		answer, err := client.Get("http://" + s.http.Addr().String() + c.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != c.status || string(body) != c.body {
			t.Errorf("%s: %d %q, want %d %q (%v)", c.path, answer.StatusCode, body, c.status, c.body, err)
		}
	}
	post, err := client.Post("http://"+s.http.Addr().String()+"/get/42", "text/plain", bytes.NewReader(nil))
	if err != nil {
		t.Fatal(err)
	}
	_ = post.Body.Close()
	if post.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a POST is answered with %d", post.StatusCode)
	}
}
