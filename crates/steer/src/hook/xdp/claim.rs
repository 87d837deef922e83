//! Whose packets are whose: ports of an interface, and the slots of those who steer them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::map;
use crate::policy::Maps;

/// The map of `bpf/steer/hooks/xdp_root.c`.
const CLAIMS: &str = "hd_claims";

/// What carries the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Segments of connections.
    Tcp = 6,
    /// Datagrams.
    Udp = 17,
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// Packets to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// Of this kind.
    pub protocol: Protocol,
    /// To this address and port; `0.0.0.0` is any address of IPv4, `::` any of IPv6. A socket that takes both is two
    /// claims.
    pub address: SocketAddr,
}

impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.protocol, self.address)
    }
}

/// Why a claim is not made.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Somebody has it, or a claim that contains it, or one that it contains.
    #[error("{wanted} is claimed already (as {there}): `heddle ls` says by whom")]
    Taken {
        /// What was wanted.
        wanted: Claim,
        /// What is there.
        there: Claim,
    },
    /// There is no room for more, or the kernel refuses.
    #[error("cannot claim {0}: {1}")]
    System(Claim, io::Error),
}

impl Claim {
    /// `struct hd_claim`.
    fn key(&self) -> [u8; 24] {
        let mut key = [0; 24];
        key[0] = self.protocol as u8;
        key[1] = if self.address.is_ipv4() { 4 } else { 6 };
        key[2..4].copy_from_slice(&self.address.port().to_ne_bytes());
        match self.address.ip() {
            IpAddr::V4(ip) => key[8..12].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => key[8..].copy_from_slice(&ip.octets()),
        }
        key
    }

    fn from_key(key: &[u8]) -> Option<Self> {
        let key: [u8; 24] = key.try_into().ok()?;
        let protocol = match key[0] {
            6 => Protocol::Tcp,
            17 => Protocol::Udp,
            _ => return None,
        };
        let octets = <[u8; 16]>::try_from(&key[8..]).ok()?;
        let ip = match key[1] {
            4 => IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3])),
            _ => IpAddr::V6(Ipv6Addr::from(octets)),
        };
        let address = SocketAddr::new(ip, u16::from_ne_bytes([key[2], key[3]]));
        Some(Self { protocol, address })
    }

    /// Whether a packet can belong to both.
    fn meets(&self, other: &Self) -> bool {
        let (a, b) = (self.address, other.address);
        let ips = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
        let same_family = a.is_ipv4() == b.is_ipv4();
        self.protocol == other.protocol && a.port() == b.port() && same_family && ips
    }
}

/// Gives the packets of `claim` to `slot` of the root of `maps`. Callers see to it that one claim is made at a time.
///
/// # Errors
/// See [`ClaimError`].
pub fn put_claim(maps: &Maps, claim: &Claim, slot: u32) -> Result<(), ClaimError> {
    let failed = |error| ClaimError::System(*claim, error);
    let there = claims(maps).map_err(failed)?;
    if let Some((there, _)) = there.into_iter().find(|(there, _)| there.meets(claim)) {
        return Err(ClaimError::Taken { wanted: *claim, there });
    }
    let claims = map(maps, CLAIMS).map_err(failed)?;
    match claims.insert(&claim.key(), &slot.to_ne_bytes()).map_err(failed)? {
        true => Ok(()),
        false => Err(ClaimError::Taken { wanted: *claim, there: *claim }),
    }
}

/// Lets the packets of `claim` pass from now on; whether it was there.
///
/// # Errors
/// The kernel's.
pub fn take_claim(maps: &Maps, claim: &Claim) -> io::Result<bool> {
    map(maps, CLAIMS)?.remove(&claim.key())
}

/// Takes all claims of `slot`.
///
/// # Errors
/// The kernel's.
pub fn take_claims(maps: &Maps, slot: u32) -> io::Result<()> {
    for (claim, of) in claims(maps)? {
        if of == slot {
            take_claim(maps, &claim)?;
        }
    }
    Ok(())
}

/// All claims of an interface, with their slots.
///
/// # Errors
/// The kernel's.
pub fn claims(maps: &Maps) -> io::Result<Vec<(Claim, u32)>> {
    let map = map(maps, CLAIMS)?;
    let mut claims = Vec::new();
    for key in map.keys()? {
        let slot = map.lookup(&key)?.and_then(|value| value.try_into().ok());
        claims.extend(Claim::from_key(&key).zip(slot.map(u32::from_ne_bytes)));
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(address: &str) -> Claim {
        Claim { protocol: Protocol::Udp, address: address.parse().unwrap() }
    }

    #[test]
    fn a_claim_is_found_again_in_its_key() {
        for address in ["0.0.0.0:80", "10.1.2.3:65535", "[::]:1", "[fd00::1:2]:8000"] {
            let tcp = Claim { protocol: Protocol::Tcp, ..udp(address) };
            for claim in [udp(address), tcp] {
                assert_eq!(Claim::from_key(&claim.key()), Some(claim));
            }
        }
        assert_ne!(udp("0.0.0.0:80").key(), udp("[::]:80").key());
    }

    #[test]
    fn claims_meet_where_a_packet_could_belong_to_both() {
        let meet = |a, b| udp(a).meets(&udp(b)) && udp(b).meets(&udp(a));
        assert!(meet("0.0.0.0:80", "10.0.0.1:80"));
        assert!(meet("[::]:80", "[fd00::1]:80"));
        assert!(!meet("10.0.0.2:80", "10.0.0.1:80"));
        assert!(!meet("0.0.0.0:80", "[::]:80"));
        assert!(!meet("0.0.0.0:80", "0.0.0.0:81"));
        let tcp = Claim { protocol: Protocol::Tcp, ..udp("0.0.0.0:80") };
        assert!(!udp("0.0.0.0:80").meets(&tcp));
    }
}
