//! Prefixes of addresses, and the longest match among them.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

/// The addresses that share their first bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Creates the prefix of the first `length` bits of `address`; longer than the address means all of it.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Self {
        let length = length.min(width(address));
        let masked = mask(bits(address), length);
        let address = match address {
            IpAddr::V4(_) => IpAddr::V4(((masked >> 96) as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(masked.into()),
        };
        Self { address, length }
    }

    /// Returns its first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the number of bits that its addresses share.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Returns whether `address` belongs to it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && mask(bits(address), self.length) == bits(self.address)
    }

    /// Returns whether `address` is the first or the last of an IPv4 network, which belong to no host. Networks of
    /// one or two addresses have no edges, nor has IPv6.
    pub(super) fn is_edge(&self, address: IpAddr) -> bool {
        let hosts = u128::MAX.checked_shr(u32::from(self.length)).unwrap_or(0) >> 96 << 96;
        let last = bits(self.address) | hosts;
        address.is_ipv4()
            && self.length < 31
            && self.contains(address)
            && (bits(address) == last || bits(address) == bits(self.address))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the number of bits that two addresses of one family share at their beginning.
pub(super) fn common_bits(a: IpAddr, b: IpAddr) -> u8 {
    let common = (bits(a) ^ bits(b)).leading_zeros() as u8;
    common.min(width(a))
}

/// Values by prefix, of one family of addresses. A lookup takes one hash for each length in use, whatever their number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PrefixMap<T> {
    /// The longest prefixes come first. Keys are addresses shifted to the left.
    lengths: Vec<(u8, Values<T>)>,
}

type Values<T> = HashMap<u128, T, BuildHasherDefault<PrefixHasher>>;

/// A hash of one multiplication: a datagram is looked up under four or five lengths, and the usual hash of Rust takes
/// 15 ns each. It resists chosen keys, but prefixes are the administrator's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PrefixHasher(u64);

impl Hasher for PrefixHasher {
    fn write_u128(&mut self, bits: u128) {
        // 2^64 divided by the golden ratio (Knuth, volume 3, 6.4). The map uses both ends of the result.
        let product =
            u128::from((bits >> 64) as u64 ^ (bits as u64).rotate_left(32)) * 0x9e37_79b9_7f4a_7c15;
        self.0 ^= product as u64 ^ (product >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u128((*byte).into()));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl<T> Default for PrefixMap<T> {
    fn default() -> Self {
        Self { lengths: Vec::new() }
    }
}

impl<T> PrefixMap<T> {
    /// Inserts a value. If the prefix has one, the better of the two stays: the new one if `replaces(old, new)`.
    pub(super) fn insert(&mut self, prefix: Prefix, value: T, replaces: impl Fn(&T, &T) -> bool) {
        let of_length = self.of_length(prefix.length);
        let key = bits(prefix.address);
        if of_length.get(&key).is_none_or(|old| replaces(old, &value)) {
            of_length.insert(key, value);
        }
    }

    /// Returns the value of the longest prefix that contains `address`, and the prefix's length.
    pub(super) fn longest_match(&self, address: IpAddr) -> Option<(u8, &T)> {
        let bits = bits(address);
        self.lengths.iter().find_map(|(length, values)| {
            values.get(&mask(bits, *length)).map(|value| (*length, value))
        })
    }

    fn of_length(&mut self, length: u8) -> &mut Values<T> {
        let position = self.lengths.partition_point(|(other, _)| *other > length);
        if self.lengths.get(position).is_none_or(|(other, _)| *other != length) {
            self.lengths.insert(position, (length, Values::default()));
        }
        &mut self.lengths[position].1
    }
}

/// Returns an address as a number, shifted to the left.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn mask(bits: u128, length: u8) -> u128 {
    bits & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
