//! Two namespaces connected by a veth pair.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Namespace;
use crate::namespace::run;

/// The interface in the near namespace.
pub const NEAR: &str = "hd0";
/// The interface in the far namespace.
pub const FAR: &str = "hd1";
/// The IPv4 address of [`NEAR`].
pub const NEAR4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The IPv4 address of [`FAR`].
pub const FAR4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The IPv6 address of [`NEAR`].
pub const NEAR6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
/// The IPv6 address of [`FAR`].
pub const FAR6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
/// The Ethernet address of [`NEAR`].
pub const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The Ethernet address of [`FAR`].
pub const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Two namespaces connected by a veth pair. Both ends are up, have addresses, and know their neighbour's.
///
/// Senders compute checksums. By default the kernel leaves that to the receiver of a veth pair, and a packet redirected
/// by XDP would arrive with a wrong one.
#[derive(Debug)]
pub struct Pair {
    /// The namespace for servers, with interface [`NEAR`].
    pub near: Namespace,
    /// The namespace for clients, with interface [`FAR`].
    pub far: Namespace,
}

impl Pair {
    /// Creates a pair whose interfaces each have `queues` receive and transmit queues.
    ///
    /// # Errors
    /// The message of `ip` or `ethtool`; usually a lack of privilege.
    pub fn new(queues: u32) -> io::Result<Self> {
        let pair = Self { near: Namespace::new()?, far: Namespace::new()? };
        pair.near.connect((NEAR, &pair.far, FAR), queues)?;
        pair.near.configure(NEAR, NEAR_MAC, (NEAR4, NEAR6))?;
        pair.far.configure(FAR, FAR_MAC, (FAR4, FAR6))?;
        pair.introduce()?;
        Ok(pair)
    }

    /// Creates a pair whose ends are connected by `middle`, which has the interfaces [`TO_NEAR`] and [`TO_FAR`]. They
    /// are up and have no addresses.
    pub(crate) fn through(middle: &Namespace, queues: u32) -> io::Result<Self> {
        let pair = Self { near: Namespace::new()?, far: Namespace::new()? };
        middle.connect((TO_NEAR, &pair.near, NEAR), queues)?;
        middle.connect((TO_FAR, &pair.far, FAR), queues)?;
        for interface in [TO_NEAR, TO_FAR] {
            run(middle.command("ethtool").args(["-K", interface, "tx", "off"]))?;
            middle.ip(&format!("link set {interface} up"))?;
        }
        pair.near.configure(NEAR, NEAR_MAC, (NEAR4, NEAR6))?;
        pair.far.configure(FAR, FAR_MAC, (FAR4, FAR6))?;
        Ok(pair)
    }

    /// Makes each end know the other's Ethernet address.
    pub(crate) fn introduce(&self) -> io::Result<()> {
        self.near.add_neighbour(NEAR, FAR_MAC, (FAR4.into(), FAR6.into()))?;
        self.far.add_neighbour(FAR, NEAR_MAC, (NEAR4.into(), NEAR6.into()))
    }
}

/// The interfaces of a namespace in the middle.
pub(crate) const TO_NEAR: &str = "near0";
pub(crate) const TO_FAR: &str = "far0";

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

impl Namespace {
    fn configure(
        &self,
        interface: &str,
        address: [u8; 6],
        (v4, v6): (Ipv4Addr, Ipv6Addr),
    ) -> io::Result<()> {
        run(self.command("ethtool").args(["-K", interface, "tx", "off"]))?;
        self.ip(&format!("link set {interface} address {}", mac(address)))?;
        self.ip(&format!("addr add {v4}/24 dev {interface}"))?;
        // `nodad` skips duplicate address detection, which takes a second.
        self.ip(&format!("addr add {v6}/64 dev {interface} nodad"))?;
        self.ip(&format!("link set {interface} up"))
    }

    /// Connects it to another namespace by a veth pair: the name of its own end, the other namespace and its end.
    fn connect(&self, (own, other, peer): (&str, &Namespace, &str), queues: u32) -> io::Result<()> {
        let shape = format!("numrxqueues {queues} numtxqueues {queues}");
        let other = other.name();
        self.ip(&format!("link add {own} {shape} type veth peer name {peer} {shape} netns {other}"))
    }

    pub(crate) fn add_neighbour(
        &self,
        interface: &str,
        address: [u8; 6],
        (v4, v6): (IpAddr, IpAddr),
    ) -> io::Result<()> {
        let address = mac(address);
        self.ip(&format!("neigh replace {v4} lladdr {address} dev {interface} nud permanent"))?;
        self.ip(&format!("neigh replace {v6} lladdr {address} dev {interface} nud permanent"))
    }
}
