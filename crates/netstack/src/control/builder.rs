//! Snapshots without a kernel, for tests of what uses them.

use std::net::IpAddr;
use std::sync::Arc;

use super::routes::{Hop, MAIN, RouteEntry, Routes, Target};
use super::snapshot::{Link, Neighbour, Neighbours};
use super::{InterfaceAddress, Mac, Prefix, Resolution, Snapshot};

/// Makes a [`Snapshot`] by hand. Only what is added exists; routes are in the main table.
///
/// ```
/// use heddle_netstack::control::{Mac, Route, SnapshotBuilder};
///
/// let snapshot = SnapshotBuilder::new(2, Mac([2, 0, 0, 0, 0, 1]))
///     .address("10.0.0.1".parse()?, 24)
///     .gateway("10.0.0.254".parse()?)
///     .neighbour("10.0.0.254".parse()?, Mac([2, 0, 0, 0, 0, 9]))
///     .build();
/// let Route::Interface { next_hop, mtu, .. } = snapshot.next_hop("192.0.2.1".parse()?) else { panic!() };
/// assert_eq!((snapshot.neighbour(next_hop), mtu), (Some(Mac([2, 0, 0, 0, 0, 9])), 1500));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SnapshotBuilder {
    generation: u64,
    link: Link,
    addresses: Vec<InterfaceAddress>,
    routes: Vec<RouteEntry>,
    neighbours: Neighbours,
}

impl SnapshotBuilder {
    /// Starts with an interface that is up, has an MTU of 1,500 bytes and nothing else.
    #[must_use]
    pub fn new(index: u32, mac: Mac) -> Self {
        let name = format!("if{index}");
        let link = Link { index, name, mac, mtu: 1500, up: true, exists: true, ..Link::default() };
        Self {
            generation: 1,
            link,
            addresses: Vec::new(),
            routes: Vec::new(),
            neighbours: Neighbours::new(),
        }
    }

    /// Sets the snapshot's number.
    #[must_use]
    pub fn generation(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// Sets the interface's MTU, in bytes.
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.link.mtu = mtu;
        self
    }

    /// Sets whether the interface is up.
    #[must_use]
    pub fn up(mut self, up: bool) -> Self {
        self.link.up = up;
        self
    }

    /// Sets whether the interface is one end of a veth pair.
    #[must_use]
    pub fn veth(mut self, veth: bool) -> Self {
        self.link.veth = veth;
        self
    }

    /// Adds an address, and the route to its network.
    #[must_use]
    pub fn address(mut self, ip: IpAddr, prefix_length: u8) -> Self {
        let network = Prefix::new(ip, prefix_length);
        self.addresses.push(InterfaceAddress { ip, network, preferred: true });
        self.route(network, None, None)
    }

    /// Adds a default route by way of `gateway`, for the gateway's family.
    #[must_use]
    pub fn gateway(self, gateway: IpAddr) -> Self {
        self.route(Prefix::new(gateway, 0), Some(gateway), None)
    }

    /// Adds a route by the interface; without a gateway its destinations are on the link.
    #[must_use]
    pub fn route(mut self, prefix: Prefix, gateway: Option<IpAddr>, mtu: Option<u32>) -> Self {
        let target = Target::Interface(Hop { gateway, source: None, mtu });
        self.routes.push(RouteEntry { table: MAIN, prefix, metric: 0, target });
        self
    }

    /// Adds a route that the kernel must follow, by another interface for example.
    #[must_use]
    pub fn kernel_route(mut self, prefix: Prefix) -> Self {
        self.routes.push(RouteEntry { table: MAIN, prefix, metric: 0, target: Target::Kernel });
        self
    }

    /// Adds a neighbour with a known Ethernet address.
    #[must_use]
    pub fn neighbour(self, address: IpAddr, mac: Mac) -> Self {
        self.resolution(address, Resolution::Resolved(mac))
    }

    /// Adds a neighbour in any state.
    #[must_use]
    pub fn resolution(mut self, address: IpAddr, resolution: Resolution) -> Self {
        self.neighbours.insert(address, Neighbour { resolution, maintained: true });
        self
    }

    /// Returns the snapshot.
    #[must_use]
    pub fn build(self) -> Arc<Snapshot> {
        Arc::new(Snapshot {
            generation: self.generation,
            link: self.link,
            addresses: self.addresses.into(),
            routes: Arc::new(Routes::new(self.routes, Vec::new(), Vec::new())),
            neighbours: Arc::new(self.neighbours),
        })
    }
}
