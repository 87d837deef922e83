package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heddle-sched/heddle/go/bench/internal/kv"
	"github.com/heddle-sched/heddle/go/bench/internal/wire"
)

// The server's limits, those of `heddle kv serve`.
const (
	maxInFlight = 16_384    // datagrams received and not yet answered
	maxRange    = 1_000_000 // keys read by one SCAN
	maxKey      = 4096      // bytes of a key
)

// datagrams is the state shared by the goroutines that answer datagrams.
type datagrams struct {
	running  sync.WaitGroup
	inFlight atomic.Int64
	// Datagrams that were not answered as asked.
	dropped, malformed, refused, failed, unsent atomic.Uint64
}

// packet is a datagram on its way through the server.
type packet struct {
	from     netip.AddrPort
	received time.Time
	bytes    []byte
	answer   []byte
	key      [wire.IDKeyLen]byte
}

// packets keeps the fast path free of allocations of our own.
var packets = sync.Pool{New: func() any {
	return &packet{bytes: make([]byte, 0, wire.RequestHeader), answer: make([]byte, 0, wire.ResponseLen)}
}}

// serveDatagrams receives until ctx is done, then waits for the last answer.
func (s *server) serveDatagrams(ctx context.Context) error {
	// A deadline in the past ends the reader and leaves the socket to goroutines that still
	// answer.
	stop := context.AfterFunc(ctx, func() { _ = s.udp.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := s.receive(ctx)
	s.running.Wait()
	return errors.Join(err, s.udp.Close())
}

// receive starts a goroutine for each datagram.
func (s *server) receive(ctx context.Context) error {
	buffer := make([]byte, wire.MaxDatagram)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buffer)
		if ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("cannot receive datagrams: %w", err)
		}
		received := time.Now()
		if !s.enter() {
			continue
		}
		p := packets.Get().(*packet)
		p.from, p.received, p.bytes = from, received, append(p.bytes[:0], buffer[:n]...)
		go s.handle(p)
	}
}

// enter admits one more datagram, or counts it as dropped.
func (d *datagrams) enter() bool {
	if d.inFlight.Add(1) > maxInFlight {
		d.inFlight.Add(-1)
		d.dropped.Add(1)
		return false
	}
	d.running.Add(1)
	return true
}

func (d *datagrams) leave() {
	d.inFlight.Add(-1)
	d.running.Done()
}

func (s *server) handle(p *packet) {
	defer s.leave()
	if s.respond(p) {
		if _, err := s.udp.WriteToUDPAddrPort(p.answer, p.from); err != nil && !errors.Is(err, net.ErrClosed) {
			s.unsent.Add(1)
		}
	}
	packets.Put(p)
}

// respond writes p.answer, unless p is not a request, which is counted.
func (s *server) respond(p *packet) bool {
	start := time.Now()
	var request wire.Request
	if request.Decode(p.bytes) != nil {
		s.malformed.Add(1)
		return false
	}
	status, found := s.perform(&request, p)
	response := wire.Response{
		Op: request.Op, Status: status, ID: request.ID, Sent: request.Sent,
		Count: found.Keys, Bytes: found.Bytes, Digest: found.Digest,
		Queued: start.Sub(p.received), Service: time.Since(start),
	}
	p.answer = response.Append(p.answer[:0])
	return true
}

func (s *server) perform(r *wire.Request, p *packet) (wire.Status, kv.Result) {
	if len(r.Key) > maxKey || r.Count > maxRange {
		s.refused.Add(1)
		return wire.Refused, kv.Result{}
	}
	key := r.Key
	if key == nil {
		key = wire.AppendIDKey(p.key[:0], r.KeyID)
	}
	found, err := s.operate(r, key)
	switch {
	case err != nil:
		s.failed.Add(1)
		return wire.StoreError, kv.Result{}
	case r.Op == wire.Get && found.Keys == 0:
		return wire.NotFound, found
	}
	return wire.OK, found
}

func (s *server) operate(r *wire.Request, key []byte) (kv.Result, error) {
	switch r.Op {
	case wire.Get:
		return s.store.Get(key)
	case wire.Scan:
		return s.store.Scan(key, r.Count)
	case wire.Put:
		// Badger keeps its arguments until they are written; the packet is reused before that.
		return s.store.Put(append([]byte(nil), key...), append([]byte(nil), r.Value...))
	default:
		return kv.Result{}, nil
	}
}

// report prints the counts of datagrams that were not answered as asked, if any.
func (d *datagrams) report(out io.Writer) {
	for _, count := range []struct {
		outcome string
		n       uint64
	}{
		{"dropped, too many in flight", d.dropped.Load()},
		{"not of the protocol", d.malformed.Load()},
		{"refused, outside the limits", d.refused.Load()},
		{"failed in the store", d.failed.Load()},
		{"answered, but not sent", d.unsent.Load()},
	} {
		if count.n > 0 {
			fmt.Fprintf(out, "badger-server: %d datagrams were %s\n", count.n, count.outcome)
		}
	}
}
