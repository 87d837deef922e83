//! Claims of lanes: ports whose packets go to user space, and the kernel's sockets that prove them.
//!
//! Another program cannot have the port while this process's kernel socket has it. The kernel's side looks at the
//! socket again for each packet, so a claim ends with the last of its sockets even if it is never released.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::io::Errno;
use rustix::net::sockopt::{
    ipv6_v6only, socket_acceptconn, socket_cookie, socket_domain, socket_protocol,
};
use rustix::net::{AddressFamily, getsockname, ipproto};

use super::Deployment;
use crate::hook::xdp::{Claim, Protocol, map};

const CLAIMS: &str = "hd_claims";
const PROOFS: &str = "hd_proofs";
/// How many sockets can prove a claim: `HD_MAX_PROOFS`.
pub const MAX_PROOFS: u32 = 64;

/// Why a port cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The kernel would not give the port's packets to the socket.
    #[error("a socket does not prove that {claim} is this process's: {why}")]
    Proof {
        /// The claim.
        claim: Claim,
        /// What is wrong with the socket.
        why: &'static str,
    },
    /// Another map has the socket: that of a reuseport group, or of a program that redirects streams.
    #[error(
        "{0} cannot be claimed by a socket that another program steers: detach it (`heddle steer ls`)"
    )]
    Steered(Claim),
    /// The kernel's tables are full.
    #[error(
        "{0} cannot be claimed: 16384 claims, and as many sockets that prove them, are the most"
    )]
    Full(Claim),
    /// Too many sockets for one claim.
    #[error("{0} has {MAX_PROOFS} sockets that prove it already, which are the most")]
    Proofs(Claim),
    /// Another failure.
    #[error("cannot claim {0}: {1}")]
    System(Claim, io::Error),
}

impl ClaimError {
    fn system(claim: Claim, error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => Self::Steered(claim),
            Some(Errno::TOOBIG | Errno::NOMEM) => Self::Full(claim),
            _ => Self::System(claim, error),
        }
    }
}

impl Deployment {
    /// Gives the packets of `protocol` to `address` to the lanes, as long as one of the sockets in `proof` has the
    /// port in the kernel: bound, for UDP; listening, for TCP. Several claims of an address add their sockets up.
    ///
    /// The unspecified address is any of the machine's ([`Self::set_local`]), of its family: a socket on `::` that
    /// takes IPv4 too is two claims.
    ///
    /// Without any proof so far, the claim holds until it is released. A listener should make it so when its socket
    /// is bound and does not listen yet, and add the proof when it does: if it listened first, the kernel could
    /// accept a connection whose next segments then go to a lane.
    ///
    /// # Errors
    /// See [`ClaimError`]; the claim is as before then.
    pub fn claim(
        &self,
        protocol: Protocol,
        address: SocketAddr,
        proof: &[BorrowedFd<'_>],
    ) -> Result<(), ClaimError> {
        let claim = Claim { protocol, address: canonical(address) };
        for socket in proof {
            check(&claim, *socket)?;
        }
        let mut ports = self.ports();
        let mut proofs = ports.proofs(&claim).unwrap_or(0);
        for socket in proof {
            proofs = self.put_proof(&claim, proofs, *socket)?;
        }
        let claims = map(&self.maps, CLAIMS);
        claims
            .and_then(|map| map.update(&claim.key(), &proofs.to_ne_bytes()))
            .map_err(|error| ClaimError::system(claim, error))?;
        ports.claim(claim, proofs);
        Ok(())
    }

    /// Ends a claim: its packets pass to the kernel from now on, which would reset connections that lanes accepted
    /// there. Those that shall go on are made the process's own before ([`Self::add_outgoing`]). Returns whether
    /// there was a claim.
    ///
    /// # Errors
    /// The kernel's.
    pub fn release(&self, protocol: Protocol, address: SocketAddr) -> io::Result<bool> {
        let claim = Claim { protocol, address: canonical(address) };
        let mut ports = self.ports();
        let Some(proofs) = ports.proofs(&claim) else { return Ok(false) };
        map(&self.maps, CLAIMS)?.remove(&claim.key())?;
        ports.release(&claim);
        for index in (0..MAX_PROOFS).filter(|index| proofs >> index & 1 == 1) {
            map(&self.maps, PROOFS)?.remove(&proof_key(&claim, index))?;
        }
        Ok(true)
    }

    /// Returns the claims, whether or not they are still proven.
    #[must_use]
    pub fn claims(&self) -> Vec<Claim> {
        self.ports().claims().copied().collect()
    }

    /// Adds a socket to those of a claim, instead of one that has closed if there is any. Returns the new bits.
    fn put_proof(
        &self,
        claim: &Claim,
        proofs: u64,
        socket: BorrowedFd<'_>,
    ) -> Result<u64, ClaimError> {
        let failed = |error| ClaimError::system(*claim, error);
        let proven = map(&self.maps, PROOFS).map_err(failed)?;
        let cookie = socket_cookie(socket).map_err(|error| failed(error.into()))?;
        let mut free = None;
        for index in 0..MAX_PROOFS {
            let is_set = proofs >> index & 1 == 1;
            let there = match is_set {
                true => proven.lookup(&proof_key(claim, index)).map_err(failed)?,
                false => None,
            };
            match there {
                Some(there) if there == cookie.to_ne_bytes() => return Ok(proofs),
                Some(_) => {}
                None => free = free.or(Some(index)),
            }
        }
        let index = free.ok_or(ClaimError::Proofs(*claim))?;
        let value = i64::from(rustix::fd::AsRawFd::as_raw_fd(&socket.as_fd())).to_ne_bytes();
        proven.update(&proof_key(claim, index), &value).map_err(failed)?;
        Ok(proofs | 1 << index)
    }
}

/// `struct hd_claim` with the number of the proof.
fn proof_key(claim: &Claim, index: u32) -> [u8; 24] {
    let mut key = claim.key();
    key[4..8].copy_from_slice(&index.to_ne_bytes());
    key
}

/// An IPv4 address that is written as an IPv6 address is IPv4 on the wire.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Checks that the kernel would give the packets of `claim` to `socket`.
fn check(claim: &Claim, socket: BorrowedFd<'_>) -> Result<(), ClaimError> {
    let refuse = |why| Err(ClaimError::Proof { claim: *claim, why });
    let system = |error: Errno| ClaimError::System(*claim, error.into());
    let domain = socket_domain(socket).map_err(system)?;
    let protocol = socket_protocol(socket).map_err(system)?;
    let wanted = match claim.protocol {
        Protocol::Tcp => ipproto::TCP,
        Protocol::Udp => ipproto::UDP,
    };
    if protocol != Some(wanted) {
        return refuse("it is of another protocol");
    }
    if ![AddressFamily::INET, AddressFamily::INET6].contains(&domain) {
        return refuse("it is of no IP family");
    }
    let bound = getsockname(socket).map_err(system)?;
    let Ok(bound) = SocketAddr::try_from(bound) else { return refuse("it has no IP address") };
    let bound = canonical(bound);
    if bound.port() != claim.address.port() || bound.port() == 0 {
        return refuse("it is bound to another port, or none");
    }
    let only6 = domain == AddressFamily::INET6 && ipv6_v6only(socket).map_err(system)?;
    if !covers(bound.ip(), only6, claim.address.ip()) {
        return refuse("it is bound to another address");
    }
    if claim.protocol == Protocol::Tcp && !socket_acceptconn(socket).map_err(system)? {
        return refuse("it does not listen");
    }
    Ok(())
}

/// Returns whether a socket bound to `bound` takes packets to all addresses that a claim of `claimed` means.
fn covers(bound: IpAddr, only6: bool, claimed: IpAddr) -> bool {
    let any = match bound {
        IpAddr::V4(_) => claimed.is_ipv4(),
        IpAddr::V6(_) => claimed.is_ipv6() || !only6,
    };
    bound == claimed || (bound.is_unspecified() && any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_covers_its_address_and_one_for_all_covers_its_families() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let covers = |bound, only6, claimed| covers(ip(bound), only6, ip(claimed));
        assert!(covers("10.0.0.1", false, "10.0.0.1") && covers("0.0.0.0", false, "10.0.0.1"));
        assert!(covers("::", false, "10.0.0.1") && covers("::", false, "0.0.0.0"));
        assert!(covers("::", true, "fd00::1") && covers("::", true, "::"));
        assert!(!covers("::", true, "0.0.0.0") && !covers("0.0.0.0", false, "::"));
        assert!(!covers("10.0.0.1", false, "0.0.0.0") && !covers("fd00::1", true, "::"));
    }

    #[test]
    fn a_mapped_address_is_an_ipv4_address() {
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:80".parse().unwrap();
        assert_eq!(canonical(mapped), "10.0.0.1:80".parse().unwrap());
    }
}
