//! ICMP errors about packets that this machine has sent: which packet, and what happened to it.

use crate::packet::{ICMP, ICMP6, Packet, TCP, UDP};
use heddle_tcp::IcmpError;
use heddle_tcp::checksum::{self, Sum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is longer than the path allows, which is `mtu` bytes with the IP header.
    TooBig {
        /// The path's limit in bytes.
        mtu: u32,
    },
    /// Nothing listens on its port, or nothing speaks its protocol.
    Refused,
    /// It did not arrive, which may change: no route, an expired time to live.
    Unreachable,
}

/// An ICMP error about a packet of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What happened.
    pub problem: Problem,
    /// The transport of the packet: TCP or UDP.
    pub protocol: u8,
    /// The sender of the packet: an address of this machine.
    pub local: SocketAddr,
    /// Its receiver.
    pub remote: SocketAddr,
    /// The sequence number of a TCP segment. Only who saw the packet knows it (RFC 5927, section 4).
    pub sequence: u32,
}

impl From<Problem> for IcmpError {
    fn from(problem: Problem) -> IcmpError {
        match problem {
            Problem::TooBig { mtu } => {
                IcmpError::PacketTooBig { mtu: u16::try_from(mtu).unwrap_or(u16::MAX) }
            }
            Problem::Refused => IcmpError::Unreachable { is_hard: true },
            Problem::Unreachable => IcmpError::Unreachable { is_hard: false },
        }
    }
}

/// Bytes before the quoted packet, in both versions.
const HEADER: usize = 8;
/// Bytes of the quoted transport: ports and sequence number.
const QUOTED: usize = 8;

/// Reads an ICMP error. Returns `None` if it is none, is damaged, or quotes too little of the packet.
#[must_use]
pub fn parse(packet: &Packet<'_>) -> Option<Error> {
    let header: &[u8; HEADER] = packet.transport.first_chunk()?;
    if !is_checksum_right(packet) {
        return None;
    }
    let (problem, quoted) = match packet.protocol {
        ICMP => (problem_v4(header)?, quoted_v4(&packet.transport[HEADER..])?),
        ICMP6 => (problem_v6(header)?, quoted_v6(&packet.transport[HEADER..])?),
        _ => return None,
    };
    let (protocol, local, remote, transport) = quoted;
    // A problem of our packet is reported to the packet's sender.
    if local != packet.destination || !matches!(protocol, TCP | UDP) {
        return None;
    }
    let transport: &[u8; QUOTED] = transport.first_chunk()?;
    let port = |at: usize| u16::from_be_bytes([transport[at], transport[at + 1]]);
    let sequence = u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
    let (local, remote) = (SocketAddr::new(local, port(0)), SocketAddr::new(remote, port(2)));
    Some(Error { problem, protocol, local, remote, sequence })
}

fn is_checksum_right(packet: &Packet<'_>) -> bool {
    let Packet { source, destination, transport, .. } = *packet;
    if packet.protocol == ICMP {
        return checksum::checksum(transport) == 0;
    }
    let mut sum = Sum::pseudo_header(source, destination, ICMP6, transport.len());
    sum.add(transport);
    sum.finish() == 0
}

/// RFC 792 and RFC 1191: the next hop's limit is in the last two bytes.
fn problem_v4(header: &[u8; HEADER]) -> Option<Problem> {
    match (header[0], header[1]) {
        (3, 4) => {
            let mtu = u32::from(u16::from_be_bytes([header[6], header[7]]));
            Some(Problem::TooBig { mtu })
        }
        (3, 2 | 3) => Some(Problem::Refused),
        (3, _) | (11, _) => Some(Problem::Unreachable),
        _ => None,
    }
}

/// RFC 4443.
fn problem_v6(header: &[u8; HEADER]) -> Option<Problem> {
    match (header[0], header[1]) {
        (2, _) => {
            let mtu = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            Some(Problem::TooBig { mtu })
        }
        (1, 4) | (4, 1) => Some(Problem::Refused),
        (1 | 3, _) => Some(Problem::Unreachable),
        _ => None,
    }
}

type Quoted<'a> = (u8, IpAddr, IpAddr, &'a [u8]);

/// The packet that an error quotes: cut off, and its checksum field may have changed on the way.
fn quoted_v4(bytes: &[u8]) -> Option<Quoted<'_>> {
    let header: &[u8; 20] = bytes.first_chunk()?;
    let length = usize::from(header[0] & 15) * 4;
    if header[0] >> 4 != 4 || length < 20 {
        return None;
    }
    let address =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    Some((header[9], address(12).into(), address(16).into(), bytes.get(length..)?))
}

fn quoted_v6(bytes: &[u8]) -> Option<Quoted<'_>> {
    let header: &[u8; 40] = bytes.first_chunk()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let address = |at: usize| -> Option<IpAddr> {
        Some(Ipv6Addr::from(*header.get(at..at + 16)?.first_chunk::<16>()?).into())
    };
    // We send no extension headers.
    Some((header[6], address(8)?, address(24)?, &bytes[40..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Mac;
    use crate::packet::{self, Path};
    use proptest::prelude::*;

    /// An error of type and code `what` with `rest` in its header, about a datagram from us to the host that reports.
    fn error(v6: bool, what: (u8, u8), rest: [u8; 4]) -> Vec<u8> {
        let (us, them) = match v6 {
            false => ("10.0.0.1", "10.0.0.2"),
            true => ("fd00::1", "fd00::2"),
        };
        let (us, them): (IpAddr, IpAddr) = (us.parse().unwrap(), them.parse().unwrap());
        let macs = (Mac([2; 6]), Mac([4; 6]));
        let path = Path { from: macs.0, to: macs.1, source: us, destination: them };
        let mut sent = vec![0; path.frame(8 + 4)];
        packet::write_udp(path.write(&mut sent, UDP), &path, (5000, 53), b"what");
        let quoted = &sent[14..];
        let back = Path { from: macs.1, to: macs.0, source: them, destination: us };
        let mut frame = vec![0; back.frame(HEADER + quoted.len())];
        let icmp = back.write(&mut frame, if v6 { ICMP6 } else { ICMP });
        icmp[..4].copy_from_slice(&[what.0, what.1, 0, 0]);
        icmp[4..8].copy_from_slice(&rest);
        icmp[8..].copy_from_slice(quoted);
        let mut sum = Sum::new();
        if v6 {
            sum = Sum::pseudo_header(them, us, ICMP6, icmp.len());
        }
        sum.add(icmp);
        icmp[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        frame
    }

    fn problem(frame: &[u8]) -> Option<Problem> {
        let error = parse(&packet::parse(frame)?)?;
        assert_eq!((error.protocol, error.local.port(), error.remote.port()), (UDP, 5000, 53));
        Some(error.problem)
    }

    #[test]
    fn problems_are_distinguished() {
        let too_big = Some(Problem::TooBig { mtu: 1400 });
        assert_eq!(problem(&error(false, (3, 4), [0, 0, 5, 120])), too_big);
        assert_eq!(problem(&error(true, (2, 0), [0, 0, 5, 120])), too_big);
        assert_eq!(problem(&error(false, (3, 3), [0; 4])), Some(Problem::Refused));
        assert_eq!(problem(&error(true, (1, 4), [0; 4])), Some(Problem::Refused));
        assert_eq!(problem(&error(false, (3, 1), [0; 4])), Some(Problem::Unreachable));
        assert_eq!(problem(&error(true, (3, 0), [0; 4])), Some(Problem::Unreachable));
        assert_eq!(problem(&error(false, (8, 0), [0; 4])), None, "an echo request");
    }

    proptest! {
        #[test]
        fn damaged_and_cut_errors_are_refused(v6: bool, bit: u16, cut: u8) {
            let whole = error(v6, if v6 { (1, 4) } else { (3, 3) }, [0; 4]);
            let packet = packet::parse(&whole).unwrap();
            let mut bytes = packet.transport.to_vec();
            let bit = usize::from(bit) % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(parse(&Packet { transport: &bytes, ..packet }), None);
            let end = usize::from(cut) % packet.transport.len();
            prop_assert_eq!(parse(&Packet { transport: &packet.transport[..end], ..packet }), None);
        }
    }
}
