//! Messages and attributes. Numbers are in the machine's byte order, and everything is aligned to four bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The length of a message's header.
pub(super) const HEADER: usize = 16;
/// Bits of an attribute's type that are flags.
const FLAGS: u16 = 0xc000;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct Message<'a> {
    pub(in super::super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(in super::super) payload: &'a [u8],
}

/// Returns the messages of a datagram, up to the first malformed one.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let payload = bytes.get(HEADER..length)?;
        let (kind, flags) = (u16_at(bytes, 4)?, u16_at(bytes, 6)?);
        let message = Message { kind, flags, sequence: u32_at(bytes, 8)?, payload };
        bytes = bytes.get(align(length)..).unwrap_or_default();
        Some(message)
    })
}

/// Returns the types and values of attributes, up to the first malformed one.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16_at(bytes, 0)? as usize;
        let value = bytes.get(4..length)?;
        let kind = u16_at(bytes, 2)? & !FLAGS;
        bytes = bytes.get(align(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the attributes that follow a message's fixed part of `length` bytes.
pub(super) fn attributes_after(
    payload: &[u8],
    length: usize,
) -> impl Iterator<Item = (u16, &[u8])> {
    attributes(payload.get(length..).unwrap_or_default())
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Returns an address: four bytes are IPv4, sixteen IPv6.
pub(super) fn ip(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into()),
        _ => None,
    }
}

/// Returns the address of all zeros of a family.
pub(super) fn unspecified(family: u8) -> Option<IpAddr> {
    match family {
        super::family::V4 => Some(Ipv4Addr::UNSPECIFIED.into()),
        super::family::V6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    }
}

/// Returns a text without the zero byte at its end.
pub(super) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// A message to the kernel.
#[derive(Debug)]
pub(in super::super) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Begins a message with its fixed part. `flags` are added to "this is a request".
    pub(in super::super) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        const REQUEST: u16 = 1;
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | REQUEST).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        let mut request = Self { bytes };
        request.pad();
        request
    }

    /// Appends an attribute.
    #[must_use]
    pub(in super::super) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(4 + value.len()).expect("attributes of requests are short");
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
        self
    }

    /// Returns the finished message.
    pub(super) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("requests are short");
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }

    fn pad(&mut self) {
        self.bytes.resize(align(self.bytes.len()), 0);
    }
}

fn align(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_is_read_back_as_it_was_written() {
        let request =
            Request::new(28, 0x300, &[1, 2, 3, 4]).attribute(1, &[10, 0, 0, 1]).attribute(7, &[5]);
        let bytes = request.finish(9);
        let [message] = messages(&bytes).collect::<Vec<_>>()[..] else { panic!("one message") };
        assert_eq!((message.kind, message.flags, message.sequence), (28, 0x301, 9));
        let attributes: Vec<_> = attributes_after(message.payload, 4).collect();
        assert_eq!(attributes, [(1, &[10, 0, 0, 1][..]), (7, &[5][..])]);
    }

    #[test]
    fn nested_flags_are_not_part_of_a_type() {
        let bytes = [&8_u16.to_ne_bytes()[..], &0x8012_u16.to_ne_bytes(), &[1, 2, 3, 4]].concat();
        assert_eq!(attributes(&bytes).collect::<Vec<_>>(), [(0x12, &[1, 2, 3, 4][..])]);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            prop_assert!(messages(&bytes).count() <= bytes.len() / HEADER + 1);
            prop_assert!(attributes(&bytes).count() <= bytes.len() / 4 + 1);
        }
    }
}
