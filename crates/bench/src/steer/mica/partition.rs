//! One thread's partition of the store, and the format of requests in frames.

use heddle_steer::key_hash;

/// Bytes of a request: an echoed number, and the key at 24; the answer has the value at 16.
pub const REQUEST: usize = 32;
const KEY: usize = 24;
const VALUE: usize = 16;
/// Header sizes of Ethernet, IPv4 without options, and UDP, as the client's kernel sends.
const HEADERS: usize = 14 + 20 + 8;

/// Number of keys.
pub const KEYS: u64 = 100_000;

/// The value of a key, for checking answers.
pub fn value_of(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The thread of a key, as in the policy `key-hash`.
pub fn home(key: u64, threads: u32) -> u32 {
    key_hash(&key.to_le_bytes()) % threads
}

/// The number and the value of an answer, or the number and the key of a request.
pub fn word(payload: &[u8], at: usize) -> Option<u64> {
    payload.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// A request.
pub fn request(number: u64, key: u64) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[KEY..].copy_from_slice(&key.to_le_bytes());
    bytes
}

/// The number of an answer, and whether its value is correct.
pub fn answer(payload: &[u8]) -> Option<(u64, bool)> {
    let (key, value) = (word(payload, KEY)?, word(payload, VALUE)?);
    Some((word(payload, 0)?, value == value_of(key)))
}

/// The values of one thread's keys.
pub struct Partition {
    values: Vec<u64>,
}

impl Partition {
    pub fn new(thread: u32, threads: u32) -> Self {
        let of = |key| if home(key, threads) == thread { value_of(key) } else { 0 };
        Self { values: (0..KEYS).map(of).collect() }
    }

    /// Turns the frame of a request into that of its answer.
    pub fn serve(&self, frame: &mut [u8]) {
        let Some(key) = key_of(frame) else { return };
        let value = usize::try_from(key).ok().and_then(|key| self.values.get(key)).unwrap_or(&0);
        let at = HEADERS + VALUE;
        frame[at..at + 8].copy_from_slice(&value.to_le_bytes());
        // Swapping the addresses leaves the IP checksum unchanged; the UDP checksum is omitted, which IPv4 allows.
        for (a, b, length) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
            for at in 0..length {
                frame.swap(a + at, b + at);
            }
        }
        frame[40..42].fill(0);
    }
}

/// The key of the request in a frame.
pub fn key_of(frame: &[u8]) -> Option<u64> {
    word(frame, HEADERS + KEY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_answers_for_its_keys_and_for_no_others() {
        let parts: Vec<Partition> = (0..3).map(|thread| Partition::new(thread, 3)).collect();
        for key in 1..50 {
            for (thread, part) in (0..).zip(&parts) {
                let mut frame = [&[0; HEADERS][..], &request(7, key)].concat();
                part.serve(&mut frame);
                assert_eq!(answer(&frame[HEADERS..]), Some((7, home(key, 3) == thread)));
            }
        }
    }

    #[test]
    fn what_is_cut_off_is_left_alone() {
        let mut short = [0; HEADERS + 30];
        Partition::new(0, 1).serve(&mut short);
        assert_eq!(short, [0; HEADERS + 30]);
    }
}
