//! An immutable copy of what the kernel knows of an interface.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::address::{InterfaceAddress, select_source};
use super::routes::{Hop, Routes, Target};
use super::{Mac, Prefix};

/// Where packets to a destination go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// They leave by the interface.
    Interface {
        /// The neighbour that gets the frame: a router, or the destination itself.
        next_hop: IpAddr,
        /// The source address of packets whose sender has not chosen one.
        source: IpAddr,
        /// The longest packet, IP header included, in bytes.
        mtu: u32,
    },
    /// The kernel's socket must send them: to this machine, by another interface, to a group or a broadcast address;
    /// or there is no route, and the kernel knows the right error.
    Kernel,
}

/// What the kernel knows of a neighbour's Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Nothing; [`Control::resolve`](super::Control::resolve) asks for it.
    Unknown,
    /// It was asked for, and the neighbour has not answered yet.
    Pending,
    /// This is its address.
    Resolved(Mac),
    /// The neighbour did not answer. The kernel goes on asking while the entry exists.
    Unreachable,
}

/// The interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mac: Mac,
    pub(super) mtu: u32,
    /// The MTU for IPv6, which a router may have lowered; 0 if the interface has no IPv6.
    pub(super) mtu6: u32,
    pub(super) up: bool,
    pub(super) veth: bool,
    pub(super) exists: bool,
}

/// A neighbour, as far as senders are concerned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Neighbour {
    pub(super) resolution: Resolution,
    /// The entry stays valid without traffic: it is permanent, or a program or the kernel keeps it so.
    pub(super) maintained: bool,
}

pub(super) type Neighbours = HashMap<IpAddr, Neighbour>;

/// An immutable copy of what the kernel knows of an interface: its state, addresses, routes and neighbours.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) generation: u64,
    pub(super) link: Link,
    pub(super) addresses: Arc<[InterfaceAddress]>,
    pub(super) routes: Arc<Routes>,
    pub(super) neighbours: Arc<Neighbours>,
}

impl Snapshot {
    /// Returns its number: each change of what it describes makes the next one.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the interface's index, which it keeps when it is renamed.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.link.index
    }

    /// Returns the interface's present name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// Returns the interface's Ethernet address.
    #[must_use]
    pub fn mac(&self) -> Mac {
        self.link.mac
    }

    /// Returns the longest packet that the interface sends, IP header included, in bytes.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.link.mtu
    }

    /// Returns whether the interface is up and has a carrier.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.link.up
    }

    /// Returns whether the interface still is in this namespace. A later one is another, even if it has the same name.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.link.exists
    }

    /// Returns whether the interface is one end of a veth pair, whose peer may leave checksums unfinished.
    #[must_use]
    pub fn is_veth(&self) -> bool {
        self.link.veth
    }

    /// Returns the interface's usable addresses, in the kernel's order.
    #[must_use]
    pub fn addresses(&self) -> &[InterfaceAddress] {
        &self.addresses
    }

    /// Returns whether `address` is one of the interface's usable addresses.
    #[must_use]
    pub fn is_local(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.addresses.iter().any(|own| own.ip == address)
    }

    /// Returns where packets to `destination` go.
    ///
    /// A link-local IPv6 destination is taken to be on this interface's link: a caller that has a scope compares it
    /// with [`Snapshot::index`] first.
    #[must_use]
    pub fn next_hop(&self, destination: IpAddr) -> Route {
        let destination = destination.to_canonical();
        if !self.link.up || !may_leave(destination) || self.is_local(destination) {
            return Route::Kernel;
        }
        let target = match is_link_local(destination) {
            true => Target::Interface(Hop::default()),
            false => self.routes.lookup(destination),
        };
        match target {
            Target::Interface(hop) => self.leave_by(hop, destination),
            Target::Kernel | Target::Throw => Route::Kernel,
        }
    }

    /// Returns the source address of packets to `destination` whose sender has not chosen one; `None` if they do not
    /// leave by this interface.
    #[must_use]
    pub fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        match self.next_hop(destination) {
            Route::Interface { source, .. } => Some(source),
            Route::Kernel => None,
        }
    }

    /// Returns the Ethernet address of a neighbour; `None` if it is not known to be valid.
    #[must_use]
    pub fn neighbour(&self, next_hop: IpAddr) -> Option<Mac> {
        match self.resolution(next_hop) {
            Resolution::Resolved(mac) => Some(mac),
            _ => None,
        }
    }

    /// Returns what is known of a neighbour's Ethernet address.
    #[must_use]
    pub fn resolution(&self, next_hop: IpAddr) -> Resolution {
        let neighbour = self.neighbours.get(&next_hop.to_canonical());
        neighbour.map_or(Resolution::Unknown, |neighbour| neighbour.resolution)
    }

    /// Returns whether the neighbour's entry stays valid without the kernel sending to it. An entry that is not
    /// maintained grows old unnoticed if frames bypass the kernel: call [`Control::resolve`](super::Control::resolve)
    /// for it, once, even if its address is known.
    #[must_use]
    pub fn is_maintained(&self, next_hop: IpAddr) -> bool {
        self.neighbours.get(&next_hop.to_canonical()).is_some_and(|neighbour| neighbour.maintained)
    }

    /// Returns whether `address` is on the link: in the network of one of the interface's addresses.
    #[must_use]
    pub fn is_on_link(&self, address: IpAddr) -> bool {
        let contains = |network: &Prefix| network.contains(address.to_canonical());
        self.addresses.iter().any(|own| contains(&own.network))
    }

    fn leave_by(&self, hop: Hop, destination: IpAddr) -> Route {
        let next_hop = hop.gateway.unwrap_or(destination);
        let source = hop.source.or_else(|| select_source(&self.addresses, destination, next_hop));
        match source {
            // A source of another interface is the kernel's business: no socket here is bound to it.
            Some(source) if self.is_local(source) => {
                Route::Interface { next_hop, source, mtu: self.mtu_of(hop, destination) }
            }
            _ => Route::Kernel,
        }
    }

    fn mtu_of(&self, hop: Hop, destination: IpAddr) -> u32 {
        let link = match destination {
            IpAddr::V6(_) if self.link.mtu6 != 0 => self.link.mtu.min(self.link.mtu6),
            _ => self.link.mtu,
        };
        hop.mtu.map_or(link, |mtu| mtu.min(link))
    }
}

/// Returns whether packets to `destination` can leave a machine as unicast.
fn may_leave(destination: IpAddr) -> bool {
    let broadcast = matches!(destination, IpAddr::V4(v4) if v4.is_broadcast());
    let special =
        destination.is_multicast() || destination.is_loopback() || destination.is_unspecified();
    !broadcast && !special
}

fn is_link_local(destination: IpAddr) -> bool {
    matches!(destination, IpAddr::V6(v6) if v6.is_unicast_link_local())
}
