//! How connections are made: by a lane of the runtime's own network, or by the kernel.

use super::retry::{retry, retry_async};
use super::stream_io::{Connection, StreamIo, result_of};
use crate::ambient;
use crate::engine::WeakRuntime;
use crate::lanes;
use crate::preempt::NoPreempt;
use crate::sleep_future::timeout_async;
use crate::time::now;
use heddle_core::Ns;
use heddle_netstack::connect::Plan;
use heddle_netstack::net::Net;
use heddle_sys::{clock, socket};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// How long a neighbour may take to answer. After that the kernel connects, which reports what is wrong.
const RESOLVES: Ns = Ns::from_secs(1);

/// Begins to connect to `addr`, until `deadline` at the latest.
pub(super) fn begin(addr: SocketAddr, deadline: Option<Ns>) -> io::Result<StreamIo> {
    let Some(attempt) = Attempt::to(addr)? else { return by_kernel(addr) };
    let limit = now() + RESOLVES;
    let limit = deadline.map_or(limit, |deadline| deadline.min(limit));
    match retry(Some(limit), io::ErrorKind::TimedOut, || attempt.begin()) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => by_kernel(addr),
        started => started,
    }
}

/// Like [`begin`], as a future.
pub(super) async fn begin_async(addr: SocketAddr) -> io::Result<StreamIo> {
    let Some(attempt) = Attempt::to(addr)? else { return by_kernel(addr) };
    match timeout_async(RESOLVES.into(), retry_async(|| attempt.begin())).await {
        Ok(started) => started,
        Err(_) => by_kernel(addr),
    }
}

fn by_kernel(addr: SocketAddr) -> io::Result<StreamIo> {
    socket::connect(&addr).map(StreamIo::from)
}

/// An attempt to connect by a lane.
struct Attempt {
    net: Arc<Net>,
    runtime: WeakRuntime,
    remote: SocketAddr,
}

impl Attempt {
    /// Returns an attempt to connect to `addr`; `None` if the kernel must do it.
    fn to(addr: SocketAddr) -> io::Result<Option<Attempt>> {
        let Some(net) = ambient::net()? else { return Ok(None) };
        let remote = SocketAddr::new(addr.ip().to_canonical(), addr.port());
        if net.plan(remote.ip()) == Plan::Kernel {
            return Ok(None);
        }
        Ok(Some(Attempt { net, runtime: ambient::weak()?, remote }))
    }

    /// Begins to connect; `WouldBlock` while the neighbour is not known.
    fn begin(&self) -> io::Result<StreamIo> {
        match self.net.plan(self.remote.ip()) {
            Plan::Lane { source, mtu, is_resolved: true } => self.begin_from(source, mtu),
            Plan::Lane { .. } => Err(io::ErrorKind::WouldBlock.into()),
            Plan::Kernel => by_kernel(self.remote),
        }
    }

    fn begin_from(&self, source: IpAddr, mtu: u16) -> io::Result<StreamIo> {
        let Attempt { net, runtime, remote } = self;
        let (port, local) = socket::reserve_port(source)?;
        let _guard = NoPreempt::new();
        let lane = lanes::own_of(net);
        let id = result_of(*runtime, net.connect(clock::now(), lane, local, *remote, mtu)?);
        Ok(StreamIo::by_lane(Connection::outgoing((net, *runtime), (lane, id), port)))
    }
}
