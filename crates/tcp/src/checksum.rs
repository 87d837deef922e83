//! The Internet checksum (RFC 1071), also in one pass with a copy.
//!
//! A [`Sum`] takes bytes in the order in which they lie in the packet, in pieces of any length. It adds words of eight
//! bytes in the host's order and turns the result at the end: one's complement addition does not mind (RFC 1071,
//! section 2, B).

use core::net::IpAddr;

/// TCP's protocol number.
pub const TCP: u8 = 6;
/// UDP's protocol number.
pub const UDP: u8 = 17;

/// A running one's complement sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    total: u64,
    is_odd: bool,
}

impl Sum {
    /// The sum of no bytes.
    pub const fn new() -> Sum {
        Sum { total: 0, is_odd: false }
    }

    /// The sum of the pseudo header (RFC 9293, section 3.1; RFC 8200, section 8.1) for `length` bytes of `protocol`.
    /// Both addresses must be of one family.
    pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> Sum {
        let mut sum = Sum::addresses(source, destination);
        sum.add_length(protocol, length);
        sum
    }

    /// The sum of the pseudo header's addresses alone.
    pub fn addresses(source: IpAddr, destination: IpAddr) -> Sum {
        let mut sum = Sum::new();
        sum.add_address(source);
        sum.add_address(destination);
        sum
    }

    fn add_address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.add(&v4.octets()),
            IpAddr::V6(v6) => self.add(&v6.octets()),
        }
    }

    /// Adds the pseudo header's fields that are no addresses.
    pub fn add_length(&mut self, protocol: u8, length: usize) {
        self.add_word(u64::from((length as u32).to_be()));
        self.add_word(u64::from(u16::from(protocol).to_be()));
    }

    fn add_word(&mut self, word: u64) {
        let (total, carry) = self.total.overflowing_add(word);
        self.total = total + u64::from(carry);
    }

    fn add_piece(&mut self, piece: u64, length: usize) {
        // An odd number of bytes before it: each byte of the piece is the other half of its word.
        let piece = if self.is_odd { u64::from(fold(piece).swap_bytes()) } else { piece };
        self.add_word(piece);
        self.is_odd ^= length % 2 == 1;
    }

    /// Adds `bytes`.
    pub fn add(&mut self, bytes: &[u8]) {
        self.add_piece(sum_of(bytes), bytes.len());
    }

    /// Copies `from` to `to`, which is as long, and adds it.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy(&mut self, to: &mut [u8], from: &[u8]) {
        to.copy_from_slice(from);
        self.add(from);
    }

    /// The sum of what [`partial`](Self::partial) returned it for.
    pub const fn from_partial(partial: u16) -> Sum {
        Sum { total: partial as u64, is_odd: false }
    }

    /// The sum of an even number of bytes, folded, to be added to later.
    pub fn partial(self) -> u16 {
        fold(self.total)
    }

    /// The sum as a number, folded and not inverted, for who adds the rest: the kernel, or a card.
    pub fn unfinished(self) -> u16 {
        u16::from_be(fold(self.total))
    }

    /// The checksum as it is written into the header, as a number: write it with `to_be_bytes`.
    pub fn finish(self) -> u16 {
        !self.unfinished()
    }
}

/// The sum of `bytes` as words in the host's order, the last one padded with zeros.
#[inline]
fn sum_of(bytes: &[u8]) -> u64 {
    let (chunks, rest) = bytes.as_chunks::<32>();
    let mut sums = [0u64; 8];
    for chunk in chunks {
        let (words, _) = chunk.as_chunks::<4>();
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let total: u64 = sums.iter().sum();
    total + sum_of_rest(rest)
}

/// The same for fewer than 32 bytes.
#[inline]
fn sum_of_rest(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

/// Folds a sum to 16 bits.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// Whether `segment`, a TCP segment or UDP datagram from `source` to `destination`, has a correct checksum.
///
/// A UDP datagram over IPv4 whose field is 0 has none (RFC 768): that is for the caller to see.
pub fn verify(source: IpAddr, destination: IpAddr, protocol: u8, segment: &[u8]) -> bool {
    let mut sum = Sum::pseudo_header(source, destination, protocol, segment.len());
    sum.add(segment);
    sum.finish() == 0
}

/// The checksum of `bytes` alone, such as an IPv4 header whose checksum field is 0.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = Sum::new();
    sum.add(bytes);
    sum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// RFC 1071, section 4.1, as it is written there.
    fn reference(bytes: &[u8]) -> u16 {
        let words =
            bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes), !0xddf2);
    }

    proptest! {
        #[test]
        fn pieces_add_up_to_the_reference(bytes: Vec<u8>, cuts: Vec<u8>) {
            let mut sum = Sum::new();
            let mut rest = &bytes[..];
            for cut in cuts {
                let (piece, tail) = rest.split_at(usize::from(cut).min(rest.len()));
                let mut copy = vec![0; piece.len()];
                sum.copy(&mut copy, piece);
                prop_assert_eq!(&copy[..], piece);
                rest = tail;
            }
            sum.add(rest);
            prop_assert_eq!(sum.finish(), reference(&bytes));
        }

        #[test]
        fn a_flipped_bit_is_found(mut bytes in proptest::collection::vec(any::<u8>(), 20..200), bit: u16) {
            let (source, destination) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
            bytes[16..18].fill(0);
            let mut sum = Sum::pseudo_header(source, destination, TCP, bytes.len());
            sum.add(&bytes);
            bytes[16..18].copy_from_slice(&sum.finish().to_be_bytes());
            prop_assert!(verify(source, destination, TCP, &bytes));
            let bit = usize::from(bit) % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!verify(source, destination, TCP, &bytes));
        }
    }
}
