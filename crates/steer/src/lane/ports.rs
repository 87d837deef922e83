//! What the process has at each local port: `hd_ports`, a byte for each, which the kernel reads first of all.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::Ordering;

use heddle_bpf::{Map, MapView};

use crate::hook::xdp::{Claim, Protocol};

/// Bits of a port, `bpf/steer/hooks/lane/maps.h`.
const TCP_CLAIMED: u8 = 1;
const UDP_CLAIMED: u8 = 2;
const TCP_OUTGOING: u8 = 4;

/// The ports in use, under a lock of the deployment's.
#[derive(Debug)]
pub(super) struct Ports {
    bytes: MapView,
    /// The claims, each with the sockets that prove it: a bit for each of its entries in `hd_proofs`.
    claims: BTreeMap<Claim, u64>,
    /// Connections by local port.
    outgoing: HashMap<u16, u32>,
}

impl Ports {
    pub(super) fn new(map: &Map) -> io::Result<Self> {
        let bytes = MapView::new(map)?;
        Ok(Self { bytes, claims: BTreeMap::new(), outgoing: HashMap::new() })
    }

    pub(super) fn proofs(&self, claim: &Claim) -> Option<u64> {
        self.claims.get(claim).copied()
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.claims.keys()
    }

    pub(super) fn claim(&mut self, claim: Claim, proofs: u64) {
        self.claims.insert(claim, proofs);
        self.set(claim.address.port(), bit(claim.protocol));
    }

    pub(super) fn release(&mut self, claim: &Claim) {
        self.claims.remove(claim);
        let (port, protocol) = (claim.address.port(), claim.protocol);
        let same = |other: &Claim| (other.address.port(), other.protocol) == (port, protocol);
        if !self.claims.keys().any(same) {
            self.clear(port, bit(protocol));
        }
    }

    pub(super) fn add_outgoing(&mut self, port: u16) {
        *self.outgoing.entry(port).or_default() += 1;
        self.set(port, TCP_OUTGOING);
    }

    pub(super) fn remove_outgoing(&mut self, port: u16) {
        let Some(count) = self.outgoing.get_mut(&port) else { return };
        *count -= 1;
        if *count == 0 {
            self.outgoing.remove(&port);
            self.clear(port, TCP_OUTGOING);
        }
    }

    fn set(&self, port: u16, bit: u8) {
        let (word, mask) = place(port, bit);
        self.bytes.word(0, word).fetch_or(mask, Ordering::Relaxed);
    }

    fn clear(&self, port: u16, bit: u8) {
        let (word, mask) = place(port, bit);
        self.bytes.word(0, word).fetch_and(!mask, Ordering::Relaxed);
    }
}

fn bit(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => TCP_CLAIMED,
        Protocol::Udp => UDP_CLAIMED,
    }
}

/// Returns the word that a port's byte is in, and a mask with `bit` of that byte.
fn place(port: u16, bit: u8) -> (usize, u64) {
    let port = usize::from(port);
    let mut bytes = [0; 8];
    bytes[port % 8] = bit;
    (port / 8, u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_has_a_byte_of_its_own() {
        let mut bytes = vec![0_u8; 1 << 16];
        for port in [0, 1, 7, 8, 65535] {
            let (word, mask) = place(port, TCP_OUTGOING);
            for (at, byte) in mask.to_ne_bytes().into_iter().enumerate() {
                bytes[word * 8 + at] |= byte;
            }
        }
        let set: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == TCP_OUTGOING).collect();
        assert_eq!(set, [0, 1, 7, 8, 65535]);
    }
}
