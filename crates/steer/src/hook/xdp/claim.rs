//! Ownership of packets: ports of an interface, the slots of those who steer them, and the sockets that prove
//! it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};

use super::map;
use crate::policy::Maps;

/// The maps of `bpf/steer/hooks/xdp_root.c`.
const CLAIMS: &str = "hd_claims";
const HOLDERS: &str = "hd_holders";
/// How many sockets can prove the claims of one slot.
pub const MAX_HOLDERS: usize = 64;
/// Bytes of `struct hd_claimed`.
const CLAIMED: u32 = 16;

/// The transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp = 6,
    /// UDP.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// Of this protocol.
    pub protocol: Protocol,
    /// To this address and port; `0.0.0.0` is any IPv4 address, `::` any IPv6 address. A socket that receives
    /// both is two claims.
    pub address: SocketAddr,
}

impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.protocol, self.address)
    }
}

/// Why a claim is refused.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The claim is taken, or overlaps a taken one.
    #[error("{wanted} is claimed already (as {there}): `heddle steer ls` says by whom")]
    Taken {
        /// The claim requested.
        wanted: Claim,
        /// The existing claim.
        there: Claim,
    },
    /// There is no room for more, or the kernel refuses.
    #[error("cannot claim {0}: {1}")]
    System(Claim, io::Error),
}

impl Claim {
    /// `struct hd_claim`.
    pub(crate) fn key(&self) -> [u8; 24] {
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

    /// Returns whether a packet can belong to both.
    fn meets(&self, other: &Self) -> bool {
        let (a, b) = (self.address, other.address);
        let ips = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
        let same_family = a.is_ipv4() == b.is_ipv4();
        self.protocol == other.protocol && a.port() == b.port() && same_family && ips
    }
}

/// What the kernel stores with a claim: `struct hd_claimed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claimed {
    slot: u32,
    holders: Holders,
}

impl Claimed {
    fn to_bytes(self) -> [u8; CLAIMED as usize] {
        let mut bytes = [0; CLAIMED as usize];
        bytes[..4].copy_from_slice(&self.slot.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.holders.0.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let slot = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
        let holders = bytes.get(8..16).and_then(|bytes| bytes.try_into().ok());
        Some(Self { slot, holders: Holders(holders.map_or(0, u64::from_ne_bytes)) })
    }
}

/// The sockets of a slot that prove a claim: it holds as long as one of them has its port, as the kernel sees
/// it. Without any, the claim holds until it is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holders(u64);

impl Holders {
    /// Adds the socket that [`put_holders`] put at `index`.
    #[must_use]
    pub fn with(self, index: usize) -> Self {
        Self(self.0 | 1 << (index % MAX_HOLDERS))
    }

    fn indices(self) -> impl Iterator<Item = usize> {
        (0..MAX_HOLDERS).filter(move |index| self.0 >> index & 1 == 1)
    }
}

fn holder(slot: u32, index: usize) -> io::Result<u32> {
    let index = u32::try_from(index).ok().filter(|index| *index < MAX_HOLDERS as u32);
    let text = || format!("{MAX_HOLDERS} sockets at most can prove the claims of a slot");
    let index = index.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, text()))?;
    Ok(slot * MAX_HOLDERS as u32 + index)
}

/// Makes `sockets`, of user `uid`, the proofs of the claims of `slot`, which has none, each under its index.
/// The kernel removes one when it closes; a socket that has stopped listening, or has connected to one peer,
/// proves nothing. Returns the outcome for each: `EBUSY` if another program stores data with the socket, as
/// the map of a reuseport group does; `EOPNOTSUPP` or `EINVAL` if it is bound to no port, or is a TCP socket
/// that does not listen; `EEXIST` if there is one.
///
/// A process that keeps a socket locked can delay its insertion. So it never replaces another, and a slot is
/// cleared before reuse ([`take_claims`]).
///
/// # Errors
/// `TimedOut` if sockets are kept locked for too long in total; the system's. Some may have been put then.
pub fn put_holders(
    maps: &Maps,
    uid: u32,
    slot: u32,
    sockets: &[BorrowedFd<'_>],
) -> io::Result<Vec<io::Result<()>>> {
    let at = |(index, socket)| Ok((holder(slot, index)?, socket));
    let sockets: Vec<_> = sockets.iter().copied().enumerate().map(at).collect::<io::Result<_>>()?;
    map(maps, HOLDERS)?.insert_sockets(uid, &sockets)
}

/// Gives the packets of `claim` to `slot` of the root of `maps`, as long as one of `holders` exists. Callers
/// ensure that claims are made one at a time.
///
/// # Errors
/// See [`ClaimError`].
pub fn put_claim(
    maps: &Maps,
    claim: &Claim,
    slot: u32,
    holders: Holders,
) -> Result<(), ClaimError> {
    let failed = |error| ClaimError::System(*claim, error);
    for (there, claimed) in entries(maps).map_err(failed)? {
        if !there.meets(claim) {
            continue;
        }
        // A claim whose sockets are closed no longer has its port.
        if is_held(maps, claimed).map_err(failed)? {
            return Err(ClaimError::Taken { wanted: *claim, there });
        }
        take_claim(maps, &there).map_err(failed)?;
    }
    let claims = map(maps, CLAIMS).map_err(failed)?;
    match claims.insert(&claim.key(), &Claimed { slot, holders }.to_bytes()).map_err(failed)? {
        true => Ok(()),
        false => Err(ClaimError::Taken { wanted: *claim, there: *claim }),
    }
}

/// Returns whether the root of `maps` is of this release: older ones have no holders.
#[must_use]
pub fn has_holders(maps: &Maps) -> bool {
    maps.contains_key(HOLDERS)
        && maps.get(CLAIMS).is_some_and(|map| map.spec().value_size == CLAIMED)
}

/// Returns whether any claim of `slot` holds.
///
/// # Errors
/// The kernel's.
pub fn is_claimed(maps: &Maps, slot: u32) -> io::Result<bool> {
    for (_, claimed) in entries(maps)? {
        if claimed.slot == slot && is_held(maps, claimed)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_held(maps: &Maps, claimed: Claimed) -> io::Result<bool> {
    if claimed.holders == Holders::default() {
        return Ok(true);
    }
    let holders = map(maps, HOLDERS)?;
    for index in claimed.holders.indices() {
        if holders.lookup(&holder(claimed.slot, index)?.to_ne_bytes())?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Releases `claim`: its packets pass from now on; returns whether it existed.
///
/// # Errors
/// The kernel's.
pub fn take_claim(maps: &Maps, claim: &Claim) -> io::Result<bool> {
    map(maps, CLAIMS)?.remove(&claim.key())
}

/// Releases all claims of `slot`, and the sockets that prove them.
///
/// # Errors
/// The kernel's.
pub fn take_claims(maps: &Maps, slot: u32) -> io::Result<()> {
    for (claim, of) in claims(maps)? {
        if of == slot {
            take_claim(maps, &claim)?;
        }
    }
    let Some(holders) = maps.get(HOLDERS) else { return Ok(()) };
    for index in 0..MAX_HOLDERS {
        match holders.remove(&holder(slot, index)?.to_ne_bytes()) {
            // What such maps return for an empty entry.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            }
            result => drop(result?),
        }
    }
    Ok(())
}

/// Returns all claims of an interface, with their slots, whether or not they hold.
///
/// # Errors
/// The kernel's.
pub fn claims(maps: &Maps) -> io::Result<Vec<(Claim, u32)>> {
    Ok(entries(maps)?.into_iter().map(|(claim, claimed)| (claim, claimed.slot)).collect())
}

fn entries(maps: &Maps) -> io::Result<Vec<(Claim, Claimed)>> {
    let map = map(maps, CLAIMS)?;
    let mut entries = Vec::new();
    for key in map.keys()? {
        let claimed = map.lookup(&key)?.and_then(|value| Claimed::from_bytes(&value));
        entries.extend(Claim::from_key(&key).zip(claimed));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(address: &str) -> Claim {
        Claim { protocol: Protocol::Udp, address: address.parse().unwrap() }
    }

    #[test]
    fn a_claim_is_recovered_from_its_key() {
        for address in ["0.0.0.0:80", "10.1.2.3:65535", "[::]:1", "[fd00::1:2]:8000"] {
            let tcp = Claim { protocol: Protocol::Tcp, ..udp(address) };
            for claim in [udp(address), tcp] {
                assert_eq!(Claim::from_key(&claim.key()), Some(claim));
            }
        }
        assert_ne!(udp("0.0.0.0:80").key(), udp("[::]:80").key());
    }

    #[test]
    fn a_claims_value_is_recovered_also_from_an_older_root() {
        let claimed = Claimed { slot: 7, holders: Holders::default().with(0).with(63) };
        assert_eq!(Claimed::from_bytes(&claimed.to_bytes()), Some(claimed));
        assert_eq!(claimed.holders.indices().collect::<Vec<_>>(), [0, 63]);
        let old = Claimed { slot: 7, holders: Holders::default() };
        assert_eq!(Claimed::from_bytes(&7_u32.to_ne_bytes()), Some(old));
        assert!(holder(63, MAX_HOLDERS).is_err() && holder(63, 63).is_ok());
    }

    #[test]
    fn claims_overlap_if_a_packet_could_belong_to_both() {
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
