//! Two namespaces and what is between them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::Namespace;
use crate::namespace::run;

/// The interface in the near namespace.
pub const NEAR: &str = "hd0";
/// The interface in the far namespace.
pub const FAR: &str = "hd1";
/// Its address.
pub const NEAR4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Its address.
pub const FAR4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// Its address.
pub const NEAR6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
/// Its address.
pub const FAR6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
/// Its Ethernet address.
pub const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Its Ethernet address.
pub const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Two namespaces with a veth pair between them, both ends up, with addresses, and known to each other.
///
/// Checksums are computed by the senders: the kernel leaves that to the receiver of a veth pair otherwise, and a packet
/// that XDP redirects would arrive with a wrong one.
#[derive(Debug)]
pub struct Pair {
    /// The one where servers are: interface [`NEAR`].
    pub near: Namespace,
    /// The one where clients are: interface [`FAR`].
    pub far: Namespace,
}

impl Pair {
    /// Makes a pair whose interfaces have `queues` receive and transmit queues each.
    ///
    /// # Errors
    /// What `ip` and `ethtool` said; mostly a lack of privilege.
    pub fn new(queues: u32) -> io::Result<Self> {
        let pair = Self { near: Namespace::new()?, far: Namespace::new()? };
        let shape = format!("numrxqueues {queues} numtxqueues {queues}");
        let far = pair.far.name();
        pair.near.ip(&format!(
            "link add {NEAR} {shape} type veth peer name {FAR} {shape} netns {far}"
        ))?;
        pair.near.ready(NEAR, NEAR_MAC, (NEAR4, NEAR6))?;
        pair.far.ready(FAR, FAR_MAC, (FAR4, FAR6))?;
        pair.near.knows(NEAR, FAR_MAC, (FAR4, FAR6))?;
        pair.far.knows(FAR, NEAR_MAC, (NEAR4, NEAR6))?;
        Ok(pair)
    }
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

impl Namespace {
    fn ready(
        &self,
        interface: &str,
        address: [u8; 6],
        (v4, v6): (Ipv4Addr, Ipv6Addr),
    ) -> io::Result<()> {
        run(self.command("ethtool").args(["-K", interface, "tx", "off"]))?;
        self.ip(&format!("link set {interface} address {}", mac(address)))?;
        self.ip(&format!("addr add {v4}/24 dev {interface}"))?;
        // Without the search for duplicates, which takes a second.
        self.ip(&format!("addr add {v6}/64 dev {interface} nodad"))?;
        self.ip(&format!("link set {interface} up"))
    }

    fn knows(
        &self,
        interface: &str,
        address: [u8; 6],
        (v4, v6): (Ipv4Addr, Ipv6Addr),
    ) -> io::Result<()> {
        let address = mac(address);
        self.ip(&format!("neigh replace {v4} lladdr {address} dev {interface} nud permanent"))?;
        self.ip(&format!("neigh replace {v6} lladdr {address} dev {interface} nud permanent"))
    }
}
