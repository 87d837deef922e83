//! Connections: the lane of each, by the addresses and ports of both ends.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::Deployment;
use super::claims::canonical;
use crate::hook::xdp::map;

const OUTGOING: &str = "hd_outgoing";
const FLOWS: &str = "hd_flows";
/// Bytes of `struct hd_tuple`.
const TUPLE: usize = 40;

impl Deployment {
    /// Gives the segments that come from `remote` to `local` to `lane`, whether or not the port is claimed, and without
    /// asking the policy. For a connection that the process opens, before its SYN is sent; or one that it accepted and
    /// that is to outlive its listener's claim.
    ///
    /// # Errors
    /// `AlreadyExists` if there is such a connection; `InvalidInput` if the addresses are of two families or
    /// unspecified, or there is no such lane; `E2BIG` if there are 65536 connections.
    pub fn add_outgoing(&self, local: SocketAddr, remote: SocketAddr, lane: u32) -> io::Result<()> {
        let (local, remote) = (canonical(local), canonical(remote));
        let key = tuple(local, remote)?;
        self.check_lane(lane)?;
        let mut ports = self.ports();
        if !map(&self.maps, OUTGOING)?.insert(&key, &lane.to_ne_bytes())? {
            let text = format!("there is a connection from {local} to {remote}");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        ports.add_outgoing(local.port());
        Ok(())
    }

    /// Leaves the segments of such a connection to the kernel. Returns whether there was one.
    ///
    /// # Errors
    /// As [`Self::add_outgoing`].
    pub fn remove_outgoing(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
        let (local, remote) = (canonical(local), canonical(remote));
        let key = tuple(local, remote)?;
        let mut ports = self.ports();
        let was_there = map(&self.maps, OUTGOING)?.remove(&key)?;
        if was_there {
            ports.remove_outgoing(local.port());
        }
        Ok(was_there)
    }

    /// Gives the segments of an accepted connection to `lane`: if its record was evicted, or to move it. It lasts as
    /// long as the claim, and may be evicted again. Without effect under the policy `hash`, which needs no records.
    ///
    /// # Errors
    /// `InvalidInput` as for [`Self::add_outgoing`]; the kernel's.
    pub fn record_flow(&self, local: SocketAddr, remote: SocketAddr, lane: u32) -> io::Result<()> {
        let key = tuple(canonical(local), canonical(remote))?;
        self.check_lane(lane)?;
        map(&self.maps, FLOWS)?.update(&key, &lane.to_ne_bytes())
    }
}

/// `struct hd_tuple`.
fn tuple(local: SocketAddr, remote: SocketAddr) -> io::Result<[u8; TUPLE]> {
    let is_complete = |end: SocketAddr| !end.ip().is_unspecified() && end.port() != 0;
    if local.is_ipv4() != remote.is_ipv4() || !is_complete(local) || !is_complete(remote) {
        return Err(invalid(format!("{local} and {remote} are not the ends of a connection")));
    }
    let mut key = [0; TUPLE];
    for (at, end) in [(0, local), (16, remote)] {
        match end.ip() {
            IpAddr::V4(ip) => key[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => key[at..at + 16].copy_from_slice(&ip.octets()),
        }
    }
    key[32..34].copy_from_slice(&local.port().to_ne_bytes());
    key[34..36].copy_from_slice(&remote.port().to_ne_bytes());
    let family: u32 = if local.is_ipv4() { 4 } else { 6 };
    key[36..].copy_from_slice(&family.to_ne_bytes());
    Ok(key)
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_connection_have_addresses_of_one_family_and_ports() {
        let tuple = |a: &str, b: &str| tuple(a.parse().unwrap(), b.parse().unwrap());
        let there = tuple("10.0.0.1:5000", "10.0.0.2:80").unwrap();
        assert_ne!(there, tuple("10.0.0.2:80", "10.0.0.1:5000").unwrap());
        for (a, b) in [
            ("0.0.0.0:5000", "10.0.0.2:80"),
            ("10.0.0.1:0", "10.0.0.2:80"),
            ("10.0.0.1:5000", "[fd00::1]:80"),
            ("10.0.0.1:5000", "10.0.0.2:0"),
        ] {
            assert_eq!(tuple(a, b).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{a} {b}");
        }
    }
}
