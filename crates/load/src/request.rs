//! Keys, lengths and values of requests.

use super::arrivals::Arrival;
use super::mix::Op;

/// Sizes that all requests of a run share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of keys in the server's dataset.
    pub keys: usize,
    /// Number of keys that a SCAN reads.
    pub scan_len: u32,
    /// Number of bytes that a SET writes.
    pub value_len: usize,
    value: Vec<u8>,
}

impl Shape {
    /// A shape whose SETs write `value_len` bytes, which are not all equal.
    pub fn new(keys: usize, scan_len: u32, value_len: usize) -> Shape {
        let value = (0..value_len).map(|i| b'a' + (i % 26) as u8).collect();
        Shape { keys, scan_len, value_len, value }
    }

    /// The key of a request. A SCAN starts where all the keys that it asks for exist, so that every SCAN
    /// does the same work.
    pub fn key(&self, request: &Arrival) -> u64 {
        match request.op {
            Op::Scan => {
                let starts = self.keys.saturating_sub(self.scan_len as usize) + 1;
                request.key % starts as u64
            }
            Op::Get | Op::Set => request.key,
        }
    }

    /// The number of keys that a request reads.
    pub fn count(&self, op: Op) -> u32 {
        if op == Op::Scan { self.scan_len } else { 0 }
    }

    /// The value that a request writes.
    pub fn value(&self, op: Op) -> &[u8] {
        if op == Op::Set { &self.value } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Ns;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_scan_stays_within_the_dataset(keys in 1usize..5000, len in 1u32..5000, draw: u64) {
            let key = draw % keys as u64;
            let request = Arrival { at: Ns::ZERO, op: Op::Scan, key };
            let first = Shape::new(keys, len, 0).key(&request);
            prop_assert!(first + u64::from(len) <= (keys as u64).max(u64::from(len)));
        }
    }
}
