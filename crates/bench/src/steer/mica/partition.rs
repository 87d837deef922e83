//! One thread's partition of the store, and the format of requests in datagrams and frames.

use heddle_load::{Answer, Arrival, Op};
use heddle_steer::key_hash;

/// Bytes of a request and of an answer:
///
/// | offset | type | field |
/// |---|---|---|
/// | 0 | u64 | number, echoed |
/// | 8 | u64 | 1 for a PUT |
/// | 16 | u64 | value: of a PUT, and of every answer |
/// | 24 | u64 | key, where the policy `key-hash` looks |
pub const REQUEST: usize = 32;
const PUT: usize = 8;
const VALUE: usize = 16;
const KEY: usize = 24;
/// Header sizes of Ethernet, IPv4 without options, and UDP, as the client's kernel sends.
const HEADERS: usize = 14 + 20 + 8;

/// Number of keys.
pub const KEYS: u64 = 100_000;
/// Bits of a value that its key does not determine.
const VERSION: u64 = 0xffff;

/// The value of a key before the first PUT. Other values differ in the bits of `VERSION`, so that an answer can be
/// checked without knowing which PUT came last.
fn value_of(key: u64) -> u64 {
    (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The thread of a key, as in the policy `key-hash`.
pub fn home(key: u64, threads: u32) -> u32 {
    key_hash(&key.to_le_bytes()) % threads
}

fn word(payload: &[u8], at: usize) -> Option<u64> {
    payload.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// The datagram of a request with this number.
pub fn request(number: u64, request: &Arrival) -> [u8; REQUEST] {
    let (put, key) = (request.op == Op::Set, request.key);
    let value = if put { value_of(key) ^ (number & VERSION) } else { 0 };
    let mut bytes = [0; REQUEST];
    for (at, word) in [(0, number), (PUT, u64::from(put)), (VALUE, value), (KEY, key)] {
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The answer of a datagram, and whether its value belongs to its key.
pub fn answer(payload: &[u8]) -> Option<Answer> {
    let (key, value) = (word(payload, KEY)?, word(payload, VALUE)?);
    let ok = (value ^ value_of(key)) & !VERSION == 0;
    Some(Answer { id: word(payload, 0)?, ok, service: None, at: None })
}

/// The values of one thread's keys; 0 for those of other threads.
pub struct Partition {
    values: Vec<u64>,
}

impl Partition {
    pub fn new(thread: u32, threads: u32) -> Self {
        let of = |key| if home(key, threads) == thread { value_of(key) } else { 0 };
        Self { values: (0..KEYS).map(of).collect() }
    }

    /// Turns the datagram of a request into that of its answer. One that is cut off is left alone.
    pub fn serve(&mut self, payload: &mut [u8]) -> Option<()> {
        let (put, key) = (word(payload, PUT)?, word(payload, KEY)?);
        let given = word(payload, VALUE)?;
        let mut none = 0;
        let value = usize::try_from(key).ok().and_then(|key| self.values.get_mut(key));
        let value = value.unwrap_or(&mut none);
        if put == 1 && *value != 0 {
            *value = given;
        }
        payload[VALUE..VALUE + 8].copy_from_slice(&value.to_le_bytes());
        Some(())
    }

    /// Turns the frame of a request into that of its answer.
    pub fn serve_frame(&mut self, frame: &mut [u8]) {
        let Some(payload) = frame.get_mut(HEADERS..) else { return };
        if self.serve(payload).is_none() {
            return;
        }
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
    use heddle_core::Ns;

    fn asked(op: Op, number: u64, key: u64) -> Vec<u8> {
        [&[0; HEADERS][..], &request(number, &Arrival { at: Ns::ZERO, op, key })].concat()
    }

    #[test]
    fn a_thread_answers_for_its_keys_and_for_no_others() {
        let mut parts: Vec<Partition> = (0..3).map(|thread| Partition::new(thread, 3)).collect();
        for key in 0..50 {
            for (thread, part) in (0..).zip(&mut parts) {
                for op in [Op::Get, Op::Set, Op::Get] {
                    let mut frame = asked(op, 7, key);
                    part.serve_frame(&mut frame);
                    let answer = answer(&frame[HEADERS..]).unwrap();
                    assert_eq!((answer.id, answer.ok), (7, home(key, 3) == thread));
                }
            }
        }
    }

    #[test]
    fn a_put_is_what_the_next_get_returns() {
        let mut part = Partition::new(0, 1);
        for number in [3, 5] {
            part.serve_frame(&mut asked(Op::Set, number, 9));
            let mut get = asked(Op::Get, 100, 9);
            part.serve_frame(&mut get);
            assert_eq!(word(&get, HEADERS + VALUE), Some(value_of(9) ^ number));
        }
    }

    #[test]
    fn what_is_cut_off_is_left_alone() {
        let mut short = [0; HEADERS + 30];
        Partition::new(0, 1).serve_frame(&mut short);
        assert_eq!(short, [0; HEADERS + 30]);
        let mut shorter = [0; 20];
        Partition::new(0, 1).serve_frame(&mut shorter);
        assert_eq!(shorter, [0; 20]);
    }
}
