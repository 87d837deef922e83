//! What an attacker must not be able to guess: flow hashes, initial sequence numbers, timestamp offsets, cookies.

use crate::address::Tuple;
use core::hash::Hasher;
use heddle_core::Ns;
use siphasher::sip::{SipHasher13, SipHasher24};

/// A random key for each use. The maker of a [`Stack`](crate::Stack) fills it from the operating system's generator.
#[derive(Clone, Copy)]
pub struct Secret([[u64; 2]; 4]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A secret of 64 random bytes.
    pub fn new(random: [u8; 64]) -> Secret {
        let (words, _) = random.as_chunks::<8>();
        let word = |i: usize| u64::from_ne_bytes(words[i]);
        Secret([0, 2, 4, 6].map(|i| [word(i), word(i + 1)]))
    }

    /// The hash by which a flow is found.
    pub(crate) fn flow(&self, tuple: &Tuple) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.0[0][0], self.0[0][1]);
        write(&mut hasher, tuple);
        let hash = hasher.finish();
        (hash ^ hash >> 32) as u32
    }

    fn keyed(&self, key: usize, tuple: &Tuple, extra: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0[key][0], self.0[key][1]);
        write(&mut hasher, tuple);
        hasher.write_u64(extra);
        hasher.finish()
    }

    /// The initial sequence number: a hash of the addresses plus a clock of 4 us (RFC 6528, section 3).
    pub(crate) fn initial_sequence(&self, tuple: &Tuple, now: Ns) -> u32 {
        (self.keyed(1, tuple, 0) as u32).wrapping_add((now.0 >> 12) as u32)
    }

    /// What is added to the clock of a flow's timestamps (RFC 7323, section 5.4).
    pub(crate) fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        self.keyed(2, tuple, 0) as u32
    }

    /// The code that authenticates a cookie made of `contents`.
    pub(crate) fn cookie(&self, tuple: &Tuple, contents: u64) -> u32 {
        self.keyed(3, tuple, contents) as u32
    }
}

fn write(hasher: &mut impl Hasher, tuple: &Tuple) {
    let ports = u32::from(tuple.local_port) << 16 | u32::from(tuple.remote_port);
    let (local, remote) = (tuple.local.words(), tuple.remote.words());
    let pair = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
    hasher.write_u64(pair(local[3], remote[3]));
    if !tuple.is_v4() {
        (0..3).for_each(|i| hasher.write_u64(pair(local[i], remote[i])));
    }
    hasher.write_u64(u64::from(ports));
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;

    fn tuple(port: u16) -> Tuple {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mut remote = addr("192.0.2.1:1");
        remote.set_port(port);
        Tuple::new(addr("192.0.2.2:80"), remote)
    }

    #[test]
    fn sequence_numbers_differ_by_flow_and_key_and_grow_with_time() {
        let (one, other) = (Secret::new([1; 64]), Secret::new([2; 64]));
        let isn = |secret: &Secret, port, now| secret.initial_sequence(&tuple(port), Ns(now));
        assert_ne!(isn(&one, 1, 0), isn(&one, 2, 0));
        assert_ne!(isn(&one, 1, 0), isn(&other, 1, 0));
        assert_eq!(
            isn(&one, 1, 4096 * 10).wrapping_sub(isn(&one, 1, 0)),
            10,
            "RFC 6528: a tick each 4 us"
        );
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(alloc::format!("{:?}", Secret::new([7; 64])), "Secret(..)");
    }
}
