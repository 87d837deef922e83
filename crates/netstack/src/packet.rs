//! Ethernet, IPv4 and IPv6 headers: reading those of claimed packets and writing our own.
//!
//! What comes here has passed the program at XDP, which takes whole TCP segments and UDP datagrams of claimed ports,
//! and ICMP errors about them. It is still read as if anybody had written it.

use crate::control::Mac;
use heddle_tcp::checksum::{self, Sum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// TCP's protocol number.
pub const TCP: u8 = 6;
/// UDP's protocol number.
pub const UDP: u8 = 17;
/// ICMP's protocol number.
pub const ICMP: u8 = 1;
/// ICMPv6's protocol number.
pub const ICMP6: u8 = 58;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of an IPv4 header without options.
const IPV4: usize = 20;
/// Bytes of an IPv6 header.
const IPV6: usize = 40;
/// Maximum number of headers between IPv6's own and the transport's.
const EXTENSIONS: usize = 4;
/// The time to live of packets that are sent.
const HOPS: u8 = 64;

/// A packet that arrived, down to its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Who sent the frame.
    pub from: Mac,
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// The transport: [`TCP`], [`UDP`], [`ICMP`] or [`ICMP6`].
    pub protocol: u8,
    /// The transport's header and what follows, without the padding of short frames.
    pub transport: &'a [u8],
}

/// Reads the headers of `frame`. Returns `None` if it is no whole packet, or if the checksum of its IPv4 header is
/// wrong.
#[must_use]
pub fn parse(frame: &[u8]) -> Option<Packet<'_>> {
    let from = Mac(*frame.get(6..12)?.first_chunk()?);
    match frame.get(12..ETHERNET)? {
        [0x08, 0x00] => parse_ipv4(from, &frame[ETHERNET..]),
        [0x86, 0xdd] => parse_ipv6(from, &frame[ETHERNET..]),
        _ => None,
    }
}

fn parse_ipv4(from: Mac, bytes: &[u8]) -> Option<Packet<'_>> {
    let header: &[u8; IPV4] = bytes.first_chunk()?;
    let length = usize::from(header[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if header[0] >> 4 != 4 || length < IPV4 || is_fragment {
        return None;
    }
    let (head, transport) = (bytes.get(..length)?, bytes.get(length..total)?);
    if checksum::checksum(head) != 0 {
        return None;
    }
    let address = |at: usize| -> Option<IpAddr> {
        Some(Ipv4Addr::from(*header.get(at..at + 4)?.first_chunk::<4>()?).into())
    };
    let (source, destination) = (address(12)?, address(16)?);
    Some(Packet { from, source, destination, protocol: header[9], transport })
}

fn parse_ipv6(from: Mac, bytes: &[u8]) -> Option<Packet<'_>> {
    let header: &[u8; IPV6] = bytes.first_chunk()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let (protocol, transport) = after_extensions(header[6], bytes[IPV6..].get(..length)?)?;
    let address = |at: usize| -> Option<IpAddr> {
        Some(Ipv6Addr::from(*header.get(at..at + 16)?.first_chunk::<16>()?).into())
    };
    let (source, destination) = (address(8)?, address(24)?);
    Some(Packet { from, source, destination, protocol, transport })
}

/// Skips hop-by-hop options, routing and destination options (RFC 8200, section 4). Returns the transport's number and
/// bytes.
fn after_extensions(mut next: u8, mut bytes: &[u8]) -> Option<(u8, &[u8])> {
    for _ in 0..EXTENSIONS {
        if !matches!(next, 0 | 43 | 60) {
            break;
        }
        let length = (usize::from(*bytes.get(1)?) + 1) * 8;
        next = bytes[0];
        bytes = bytes.get(length..)?;
    }
    Some((next, bytes))
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The interface's own address.
    pub from: Mac,
    /// The neighbour's.
    pub to: Mac,
    /// The sender, of the same family as `destination`.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
}

impl Path {
    /// Returns the bytes of the Ethernet and IP headers of its packets.
    #[must_use]
    pub fn headers(&self) -> usize {
        ETHERNET + ip_header(self.destination)
    }

    /// Returns the bytes of a frame with `transport` bytes behind the IP header.
    #[must_use]
    pub fn frame(&self, transport: usize) -> usize {
        self.headers() + transport
    }

    /// Writes the headers of a packet of `protocol` that fills `frame`, which has the length that [`Path::frame`]
    /// returns. Returns the room of the transport.
    ///
    /// # Panics
    /// If the frame is shorter than its headers.
    pub fn write<'a>(&self, frame: &'a mut [u8], protocol: u8) -> &'a mut [u8] {
        let (head, transport) = frame.split_at_mut(self.headers());
        head[..6].copy_from_slice(&self.to.0);
        head[6..12].copy_from_slice(&self.from.0);
        match (self.source, self.destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                head[12..ETHERNET].copy_from_slice(&[0x86, 0xdd]);
                write_ipv6(&mut head[ETHERNET..], source, destination, protocol, transport.len());
            }
            (source, destination) => {
                head[12..ETHERNET].copy_from_slice(&[0x08, 0x00]);
                let addresses = (v4(source), v4(destination));
                write_ipv4(&mut head[ETHERNET..], addresses, protocol, transport.len());
            }
        }
        transport
    }
}

/// Returns the bytes of the IP header of packets to `destination`.
#[must_use]
pub fn ip_header(destination: IpAddr) -> usize {
    if destination.is_ipv4() { IPV4 } else { IPV6 }
}

fn v4(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(v6) => v6.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED),
    }
}

fn write_ipv4(
    head: &mut [u8],
    (source, destination): (Ipv4Addr, Ipv4Addr),
    protocol: u8,
    transport: usize,
) {
    let total = (IPV4 + transport) as u16;
    // Version and length; service; total; identification (atomic, RFC 6864: 0); don't fragment.
    head[..8].copy_from_slice(&[0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0]);
    head[8..12].copy_from_slice(&[HOPS, protocol, 0, 0]);
    head[12..16].copy_from_slice(&source.octets());
    head[16..20].copy_from_slice(&destination.octets());
    let sum = checksum::checksum(head);
    head[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn write_ipv6(
    head: &mut [u8],
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
    transport: usize,
) {
    let length = (transport as u16).to_be_bytes();
    head[..8].copy_from_slice(&[0x60, 0, 0, 0, length[0], length[1], protocol, HOPS]);
    head[8..24].copy_from_slice(&source.octets());
    head[24..40].copy_from_slice(&destination.octets());
}

/// Returns whether the checksum of `packet`, a TCP segment or UDP datagram, holds.
///
/// With `partial`, a field with exactly the folded sum of the pseudo header also holds: what a veth pair leaves to
/// hardware that it has not, measured on Linux 6.18. Both ends are then on this machine, and nothing could have changed
/// the bytes on the way.
#[must_use]
pub fn is_checksum_right(packet: &Packet<'_>, partial: bool) -> bool {
    let at = if packet.protocol == TCP { 16 } else { 6 };
    let Some(field) = packet.transport.get(at..at + 2) else { return false };
    let field = u16::from_be_bytes([field[0], field[1]]);
    let Packet { source, destination, protocol, transport, .. } = *packet;
    if protocol == UDP && field == 0 {
        // RFC 768: the sender computed none. IPv6 forbids that (RFC 8200, section 8.1).
        return source.is_ipv4();
    }
    let unfinished =
        || !Sum::pseudo_header(source, destination, protocol, transport.len()).finish();
    partial && field == unfinished() || checksum::verify(source, destination, protocol, transport)
}

/// Returns the source's and the destination's port of a TCP segment or UDP datagram.
#[must_use]
pub fn ports(transport: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = *transport.first_chunk()?;
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

/// Returns whether a TCP segment asks for a new connection: SYN without ACK.
#[must_use]
pub fn is_syn(transport: &[u8]) -> Option<bool> {
    Some(transport.get(13)? & 0x12 == 0x02)
}

/// A UDP datagram: its ports and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The sender's port.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
    /// What it carries.
    pub payload: &'a [u8],
}

/// Bytes of a UDP header.
pub const UDP_HEADER: usize = 8;

/// Reads a UDP header; `None` if its length does not fit.
#[must_use]
pub fn parse_udp(transport: &[u8]) -> Option<Datagram<'_>> {
    let header: &[u8; UDP_HEADER] = transport.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let payload = transport.get(UDP_HEADER..usize::from(word(4)))?;
    Some(Datagram { source: word(0), destination: word(2), payload })
}

/// Writes a UDP header and `payload` into `transport`, which holds exactly both, with the checksum for `path`.
///
/// # Panics
/// If `transport` has another length.
pub fn write_udp(
    transport: &mut [u8],
    path: &Path,
    (source, destination): (u16, u16),
    payload: &[u8],
) {
    let length = transport.len();
    let mut sum = Sum::pseudo_header(path.source, path.destination, UDP, length);
    let (header, room) = transport.split_at_mut(UDP_HEADER);
    header[..2].copy_from_slice(&source.to_be_bytes());
    header[2..4].copy_from_slice(&destination.to_be_bytes());
    header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    header[6..8].fill(0);
    sum.add(header);
    sum.copy(room, payload);
    // 0 would mean "none": its other form in one's complement (RFC 768).
    let sum = match sum.finish() {
        0 => 0xffff,
        sum => sum,
    };
    header[6..8].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(v6: bool) -> Path {
        let (source, destination) = match v6 {
            false => ("10.1.0.1", "10.1.0.2"),
            true => ("fd00::1", "fd00::2"),
        };
        let address = |text: &str| text.parse().unwrap();
        let (from, to) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        Path { from, to, source: address(source), destination: address(destination) }
    }

    fn bytes(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), length)
    }

    fn datagram(path: &Path, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xaa; path.frame(UDP_HEADER + payload.len())];
        let transport = path.write(&mut frame, UDP);
        write_udp(transport, path, (7, 9), payload);
        frame
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(v6: bool, payload in bytes(0..1400), pad in 0..20_usize) {
            let path = path(v6);
            let mut frame = datagram(&path, &payload);
            frame.extend(vec![0; pad]);
            let packet = parse(&frame).unwrap();
            let ends = (packet.from, packet.source, packet.destination);
            prop_assert_eq!(ends, (path.from, path.source, path.destination));
            prop_assert!(packet.protocol == UDP && is_checksum_right(&packet, false));
            let read = parse_udp(packet.transport).unwrap();
            prop_assert_eq!((read.source, read.destination, read.payload), (7, 9, &payload[..]));
        }

        #[test]
        fn a_flipped_bit_is_noticed(v6: bool, payload: [u8; 32], bit: u16) {
            let path = path(v6);
            let mut frame = datagram(&path, &payload);
            let first = path.headers();
            let bit = usize::from(bit) % ((frame.len() - first) * 8);
            frame[first + bit / 8] ^= 1 << (bit % 8);
            let packet = parse(&frame).unwrap();
            prop_assert!(!is_checksum_right(&packet, false) || parse_udp(packet.transport).is_none());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, v6: bool, at: u16) {
            let _ = parse(&bytes);
            let mut frame = datagram(&path(v6), &[0; 8]);
            let from = usize::from(at) % frame.len();
            let until = frame.len().min(from + bytes.len());
            frame[from..until].copy_from_slice(&bytes[..until - from]);
            for end in 0..frame.len() {
                if let Some(packet) = parse(&frame[..end]) {
                    let _ = (is_checksum_right(&packet, true), parse_udp(packet.transport));
                }
            }
        }
    }

    #[test]
    fn a_checksum_left_to_hardware_is_no_wrong_one() {
        let path = path(false);
        let mut frame = datagram(&path, b"unfinished");
        let at = path.headers() + 6;
        let length = frame.len() - path.headers();
        let unfinished = !Sum::pseudo_header(path.source, path.destination, UDP, length).finish();
        frame[at..at + 2].copy_from_slice(&unfinished.to_be_bytes());
        let packet = parse(&frame).unwrap();
        assert!(is_checksum_right(&packet, true) && !is_checksum_right(&packet, false));
    }

    #[test]
    fn a_datagram_without_checksum_is_for_ipv4_only() {
        for v6 in [false, true] {
            let path = path(v6);
            let mut frame = datagram(&path, b"none");
            frame[path.headers() + 6..][..2].fill(0);
            assert_eq!(is_checksum_right(&parse(&frame).unwrap(), false), !v6);
        }
    }

    #[test]
    fn fragments_and_wrong_headers_are_refused() {
        let frame = datagram(&path(false), b"whole");
        let with = |at: usize, value: u8| {
            let mut frame = frame.clone();
            frame[ETHERNET + at] = value;
            let sum = {
                frame[ETHERNET + 10..ETHERNET + 12].fill(0);
                checksum::checksum(&frame[ETHERNET..ETHERNET + IPV4])
            };
            frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
            frame
        };
        assert!(parse(&with(1, 0)).is_some());
        assert!(parse(&with(6, 0x20)).is_none(), "more fragments");
        assert!(parse(&with(7, 1)).is_none(), "a later fragment");
        assert!(parse(&with(0, 0x55)).is_none(), "another version");
        assert!(parse(&with(0, 0x44)).is_none(), "a short header");
        assert!(parse(&with(3, 200)).is_none(), "longer than the frame");
        let mut wrong = frame.clone();
        wrong[ETHERNET + 8] ^= 1;
        assert!(parse(&wrong).is_none(), "a wrong header checksum");
    }

    #[test]
    fn extension_headers_are_skipped() {
        let path = path(true);
        let inner = datagram(&path, b"behind");
        let at = path.headers();
        let mut frame = inner[..at].to_vec();
        frame[ETHERNET + 6] = 0;
        let length = (inner.len() - at + 16) as u16;
        frame[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&length.to_be_bytes());
        frame.extend([60, 0, 0, 0, 0, 0, 0, 0, UDP, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(&inner[at..]);
        let packet = parse(&frame).unwrap();
        assert!(packet.protocol == UDP && is_checksum_right(&packet, false));
        assert_eq!(parse_udp(packet.transport).unwrap().payload, b"behind");
    }
}
