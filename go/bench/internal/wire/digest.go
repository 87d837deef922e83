package wire

import (
	"encoding/binary"
	"math/bits"
)

// AppendIDKey appends the store's key of dataset entry id, `key:000000000042`; ids of more than twelve
// digits keep their last twelve.
func AppendIDKey(out []byte, id uint64) []byte {
	out = append(out, "key:000000000000"...)
	digits := out[len(out)-12:]
	for at := len(digits) - 1; at >= 0; at-- {
		digits[at] = '0' + byte(id%10)
		id /= 10
	}
	return out
}

// Digest mixes bytes into digest, eight a step: proof that a value was read, at memory speed.
func Digest(digest uint32, bytes []byte) uint32 {
	const odd = 0x9e37_79b9_7f4a_7c15
	state := uint64(digest) ^ uint64(len(bytes))
	for ; len(bytes) >= 8; bytes = bytes[8:] {
		state = (bits.RotateLeft64(state, 5) ^ binary.LittleEndian.Uint64(bytes)) * odd
	}
	for _, b := range bytes {
		state = (bits.RotateLeft64(state, 5) ^ uint64(b)) * odd
	}
	return uint32(state>>32) ^ uint32(state)
}
