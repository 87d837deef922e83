package wire

import (
	"bytes"
	"math"
	"reflect"
	"testing"
	"time"
)

// ping is the request of crates/proto/src/udp_tests.rs.
func ping() []byte {
	return (&Request{Op: Ping, ID: 7, Sent: 9}).Append(nil)
}

func TestLayoutMatchesTheRustSide(t *testing.T) {
	want := append([]byte{'H', 1, 4, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9}, make([]byte, 15)...)
	if got := ping(); !bytes.Equal(got, want) {
		t.Errorf("request % x, want % x", got, want)
	}
	response := Response{
		Op: Scan, Status: StoreError, ID: 7, Sent: 9, Count: 2, Service: 3, Queued: 4, Bytes: 5, Digest: 6,
	}
	want = []byte{
		'H', 1, 3, 3, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
		3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0,
	}
	if got := response.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("response % x, want % x", got, want)
	}
}

func TestEachFaultIsNamed(t *testing.T) {
	broken := func(at int, value byte) []byte {
		datagram := ping()
		datagram[at] = value
		return datagram
	}
	keyTooLong := broken(3, FlagKeyBytes)
	keyTooLong[24] = 1
	for _, c := range []struct {
		datagram []byte
		want     Malformed
	}{
		{nil, "0 bytes cannot hold the header"},
		{[]byte("H\x01"), "2 bytes cannot hold the header"},
		{broken(0, 'X'), "magic 0x0158 is not 0x0148"},
		{broken(2, 0), "no operation has number 0"},
		{broken(2, 5), "no operation has number 5"},
		{broken(3, 2), "unknown flags 0x02"},
		{keyTooLong, "a key of 1 bytes does not fit the datagram"},
	} {
		if err := new(Request).Decode(c.datagram); err != c.want {
			t.Errorf("% x: %v, want %v", c.datagram, err, c.want)
		}
	}
}

func TestRequestsSurviveTheWire(t *testing.T) {
	for _, request := range []Request{
		{Op: Get, ID: 1, Sent: 2, KeyID: math.MaxUint64, Value: []byte{}},
		{Op: Scan, ID: math.MaxUint64, Count: math.MaxUint32, Key: []byte("key"), Value: []byte{}},
		{Op: Put, Key: []byte{}, Value: []byte("value")},
		{Op: Put, Key: []byte("key"), Value: []byte("value")},
	} {
		var got Request
		if err := got.Decode(request.Append(nil)); err != nil || !reflect.DeepEqual(got, request) {
			t.Errorf("%+v, want %+v (%v)", got, request, err)
		}
	}
}

func TestResponsesSurviveTheWire(t *testing.T) {
	for _, response := range []Response{
		{Op: Get, Status: NotFound, ID: 1, Sent: 2},
		{Op: Scan, Count: 3, Service: math.MaxUint32, Queued: 4, Bytes: 5, Digest: math.MaxUint32},
	} {
		var got Response
		if err := got.Decode(response.Append(nil)); err != nil || got != response {
			t.Errorf("%+v, want %+v (%v)", got, response, err)
		}
	}
	if new(Response).Decode(ping()) == nil {
		t.Error("a request was read as a response")
	}
}

func TestTimesSaturate(t *testing.T) {
	slow := Response{Op: Get, Service: time.Hour, Queued: -time.Second}
	var got Response
	if err := got.Decode(slow.Append(nil)); err != nil || got.Service != math.MaxUint32 || got.Queued != 0 {
		t.Errorf("%+v (%v)", got, err)
	}
}

func TestKeysMatchTheRustSide(t *testing.T) {
	for id, want := range map[uint64]string{
		42:             "key:000000000042",
		math.MaxUint64: "key:073709551615", // the last twelve digits stay
	} {
		if got := string(AppendIDKey(nil, id)); got != want {
			t.Errorf("%d: %s, want %s", id, got, want)
		}
	}
}

// The values are those of the Rust function.
func TestDigestMatchesTheRustSide(t *testing.T) {
	value := make([]byte, 37)
	for at := range value {
		value[at] = byte(at)
	}
	whole := Digest(0, value)
	if whole != 0x8e31fb2f || Digest(whole, []byte("heddle")) != 0x8cce299a || Digest(7, nil) != 0x00000007 {
		t.Errorf("%08x %08x %08x", whole, Digest(whole, []byte("heddle")), Digest(7, nil))
	}
	for at := range value {
		value[at] ^= 1
		if Digest(0, value) == whole {
			t.Errorf("byte %d makes no difference", at)
		}
		value[at] ^= 1
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(ping())
	f.Add((&Request{Op: Put, Key: []byte("key"), Value: []byte("value")}).Append(nil))
	f.Add((&Response{Op: Scan}).Append(nil))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		var request Request
		if request.Decode(datagram) == nil && !bytes.Equal(request.Append(nil), datagram) {
			t.Errorf("%+v is not % x", request, datagram)
		}
		_ = new(Response).Decode(datagram)
	})
}
