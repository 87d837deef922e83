//! From an address to a path: what a lane remembers of the kernel's routes and neighbours.

use crate::control::{Control, Mac, Route, Snapshot};
use crate::packet::Path;
use std::net::IpAddr;
use std::sync::Arc;

/// Where snapshots of the kernel's routes and neighbours come from: [`crate::control::Control`], or a test.
pub trait Routes: Send + Sync {
    /// Returns the number of the latest snapshot. A load.
    fn generation(&self) -> u64;

    /// Returns the latest snapshot.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// Asks the kernel for the Ethernet address of `next_hop`. Does not wait.
    fn resolve(&self, next_hop: IpAddr);
}

impl Routes for Control {
    fn generation(&self) -> u64 {
        Control::generation(self)
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Control::snapshot(self)
    }

    fn resolve(&self, next_hop: IpAddr) {
        Control::resolve(self, next_hop);
    }
}

/// A lane's view of routes and neighbours. Looking up a path takes no lock unless something has changed.
pub(crate) struct Paths {
    routes: Arc<dyn Routes>,
    snapshot: Arc<Snapshot>,
    generation: u64,
    /// The last packet's source, destination and way, if that is sure to be the next one's: many send to one.
    last: Option<(IpAddr, IpAddr, Way)>,
}

/// How a packet is sent to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the lane, in packets of up to `mtu` bytes.
    Lane { path: Path, mtu: u32 },
    /// By the lane once the neighbour is known, which was asked for.
    Unknown { source: IpAddr, mtu: u32 },
    /// By the kernel: the destination is not behind the lane's interface.
    Kernel,
}

impl Paths {
    pub(crate) fn new(routes: Arc<dyn Routes>) -> Paths {
        let generation = routes.generation();
        let snapshot = routes.snapshot();
        Paths { routes, snapshot, generation, last: None }
    }

    /// Returns the latest snapshot. It may be newer than its number here, and is then fetched once more.
    #[inline]
    pub(crate) fn snapshot(&mut self) -> &Snapshot {
        let generation = self.routes.generation();
        if generation != self.generation {
            self.generation = generation;
            self.snapshot = self.routes.snapshot();
            self.last = None;
        }
        &self.snapshot
    }

    /// Returns the number of the snapshot that the last call used.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns how packets from `source` (unspecified: the route's choice) get to `destination`.
    pub(crate) fn find(&mut self, source: IpAddr, destination: IpAddr) -> Way {
        self.snapshot();
        match self.last {
            Some((from, to, way)) if (from, to) == (source, destination) => way,
            _ => self.look_up(source, destination),
        }
    }

    fn look_up(&mut self, asked: IpAddr, destination: IpAddr) -> Way {
        let snapshot = &self.snapshot;
        let Route::Interface { next_hop, source: preferred, mtu } = snapshot.next_hop(destination)
        else {
            return Way::Kernel;
        };
        let source = if asked.is_unspecified() { preferred } else { asked };
        if source.is_ipv4() != destination.is_ipv4() {
            return Way::Kernel;
        }
        match snapshot.neighbour(next_hop) {
            Some(to) => {
                let path = Path { from: snapshot.mac(), to, source, destination };
                let way = Way::Lane { path, mtu };
                if snapshot.is_maintained(next_hop) {
                    self.last = Some((asked, destination, way));
                } else {
                    // The kernel sees none of our packets: it would not verify that the neighbour is still there.
                    self.routes.resolve(next_hop);
                }
                way
            }
            None => {
                self.routes.resolve(next_hop);
                Way::Unknown { source, mtu }
            }
        }
    }

    /// Returns the Ethernet address of the interface.
    pub(crate) fn mac(&self) -> Mac {
        self.snapshot.mac()
    }
}
