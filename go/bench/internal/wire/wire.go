// Package wire speaks the datagrams of Heddle's load generator.
//
// The layout is that of crates/proto/src/udp.rs, where it is described; all integers are
// little-endian. A request is a header of 32 bytes, then the key's bytes when [FlagKeyBytes] is set,
// then the value of a PUT. A response is 40 bytes. Values never travel back: a [Digest] of them does.
package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Sizes, in bytes.
const (
	RequestHeader = 32     // before the key and the value of a request
	ResponseLen   = 40     // of a response
	MaxDatagram   = 65_507 // of the longest datagram that UDP carries over IPv4
	IDKeyLen      = 16     // of a key that is given by its id
)

// Magic is the byte H and version 1.
const Magic = uint16('H') | 1<<8

// FlagKeyBytes marks a key given by its bytes after the header, not by its id.
const FlagKeyBytes = 1

// Op is what a request asks for.
type Op uint8

// The operations.
const (
	Get  Op = 1 // read one key
	Put  Op = 2 // write one key
	Scan Op = 3 // read Count keys in order, from the given one on
	Ping Op = 4 // answer at once
)

// Status is how a request ended.
type Status uint8

// The statuses.
const (
	OK         Status = 0
	NotFound   Status = 1 // the key does not exist
	Refused    Status = 2 // well formed, but outside the server's limits
	StoreError Status = 3 // the store failed
)

// Request is what a client sends.
type Request struct {
	Op    Op
	ID    uint64 // chosen by the client, echoed
	Sent  uint64 // when the client meant to send, on its own clock in ns; echoed
	Key   []byte // for a SCAN the first one; nil if KeyID names it
	KeyID uint64 // see [AppendIDKey]; only if Key is nil
	Count uint32 // SCAN: how many keys
	Value []byte // PUT: what to write
}

// Response is what a server answers.
type Response struct {
	Op      Op
	Status  Status
	ID      uint64
	Sent    uint64
	Count   uint32        // keys read
	Service time.Duration // from the start of the handler to its answer; saturates at 4.29 s
	Queued  time.Duration // from receipt to the start of the handler; saturates at 4.29 s
	Bytes   uint32        // of value read or written
	Digest  uint32        // of the values read
}

// A Malformed error says why a datagram is not of this protocol.
type Malformed string

func (m Malformed) Error() string { return string(m) }

func malformed(format string, args ...any) error {
	return Malformed(fmt.Sprintf(format, args...))
}

// Decode reads a request. Its key and value are views of the datagram.
func (r *Request) Decode(datagram []byte) error {
	if len(datagram) < RequestHeader {
		return malformed("%d bytes cannot hold the header", len(datagram))
	}
	if err := checkMagic(datagram); err != nil {
		return err
	}
	op := Op(datagram[2])
	if op < Get || op > Ping {
		return malformed("no operation has number %d", op)
	}
	*r = Request{
		Op:    op,
		ID:    binary.LittleEndian.Uint64(datagram[8:]),
		Sent:  binary.LittleEndian.Uint64(datagram[16:]),
		KeyID: binary.LittleEndian.Uint64(datagram[24:]),
		Count: binary.LittleEndian.Uint32(datagram[4:]),
		Value: datagram[RequestHeader:],
	}
	return r.splitKey(datagram[3])
}

// splitKey removes the key from the front of what follows the header, if the flags say that it is
// there.
func (r *Request) splitKey(flags byte) error {
	switch {
	case flags == 0:
		return nil
	case flags != FlagKeyBytes:
		return malformed("unknown flags %#02x", flags)
	case r.KeyID > uint64(len(r.Value)):
		return malformed("a key of %d bytes does not fit the datagram", r.KeyID)
	}
	r.Key, r.Value, r.KeyID = r.Value[:r.KeyID], r.Value[r.KeyID:], 0
	return nil
}

// Append appends the request's datagram to out.
func (r *Request) Append(out []byte) []byte {
	flags, key := byte(0), r.KeyID
	if r.Key != nil {
		flags, key = FlagKeyBytes, uint64(len(r.Key))
	}
	out = binary.LittleEndian.AppendUint16(out, Magic)
	out = append(out, byte(r.Op), flags)
	out = binary.LittleEndian.AppendUint32(out, r.Count)
	out = binary.LittleEndian.AppendUint64(out, r.ID)
	out = binary.LittleEndian.AppendUint64(out, r.Sent)
	out = binary.LittleEndian.AppendUint64(out, key)
	out = append(out, r.Key...)
	return append(out, r.Value...)
}

// Append appends the response's datagram to out.
func (r *Response) Append(out []byte) []byte {
	out = binary.LittleEndian.AppendUint16(out, Magic)
	out = append(out, byte(r.Op), byte(r.Status))
	out = binary.LittleEndian.AppendUint32(out, r.Count)
	out = binary.LittleEndian.AppendUint64(out, r.ID)
	out = binary.LittleEndian.AppendUint64(out, r.Sent)
	out = binary.LittleEndian.AppendUint32(out, saturated(r.Service))
	out = binary.LittleEndian.AppendUint32(out, saturated(r.Queued))
	out = binary.LittleEndian.AppendUint32(out, r.Bytes)
	return binary.LittleEndian.AppendUint32(out, r.Digest)
}

// Decode reads a response.
func (r *Response) Decode(datagram []byte) error {
	if len(datagram) != ResponseLen {
		return malformed("%d bytes are not a response", len(datagram))
	}
	if err := checkMagic(datagram); err != nil {
		return err
	}
	op, status := Op(datagram[2]), Status(datagram[3])
	if op < Get || op > Ping || status > StoreError {
		return malformed("no operation %d or no status %d", op, status)
	}
	*r = Response{
		Op: op, Status: status,
		Count:   binary.LittleEndian.Uint32(datagram[4:]),
		ID:      binary.LittleEndian.Uint64(datagram[8:]),
		Sent:    binary.LittleEndian.Uint64(datagram[16:]),
		Service: time.Duration(binary.LittleEndian.Uint32(datagram[24:])),
		Queued:  time.Duration(binary.LittleEndian.Uint32(datagram[28:])),
		Bytes:   binary.LittleEndian.Uint32(datagram[32:]),
		Digest:  binary.LittleEndian.Uint32(datagram[36:]),
	}
	return nil
}

func checkMagic(datagram []byte) error {
	if magic := binary.LittleEndian.Uint16(datagram); magic != Magic {
		return malformed("magic %#04x is not %#04x", magic, Magic)
	}
	return nil
}

func saturated(d time.Duration) uint32 {
	return uint32(min(max(d, 0), math.MaxUint32))
}
