//! What a TCP listener does: the kernel accepts, and lanes of the runtime's own network.
//!
//! A listener of lanes has a listening socket of the kernel under the same port. That is the proof of the port, and
//! accepts what does not come by way of the interface. It is asked only after the poller has reported it.

use super::options::SocketIo;
use super::stream_io::{Connection, StreamIo};
use crate::ambient;
use crate::engine::WeakRuntime;
use crate::io::Polled;
use crate::lanes;
use crate::poller::Source;
use crate::preempt::NoPreempt;
use heddle_netstack::connect::Listening;
use heddle_netstack::lane::Token;
use heddle_netstack::net::Net;
use heddle_sys::{clock, socket};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Connections that wait to be accepted in a lane, at most: the usual limit of Linux (`net.core.somaxconn`).
const BACKLOG: usize = 4096;

/// A TCP listener: what `net::TcpListener` waits for.
pub(super) struct ListenerIo {
    // Released before the kernel's socket is closed, which is the proof of the port.
    by_lanes: Option<ByLanes>,
    kernel: TcpListener,
}

/// A handle's part in a listener of the lanes.
struct ByLanes {
    bound: Arc<Bound>,
    token: Token,
    source: &'static Source,
    runtime: WeakRuntime,
}

/// A port on which lanes accept, until the last handle is gone.
struct Bound {
    net: Arc<Net>,
    local: SocketAddr,
    listening: Listening,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if !self.net.is_ours() {
            return;
        }
        let _guard = NoPreempt::new();
        self.net.stop_listening(clock::now(), self.local, &self.listening);
    }
}

impl Drop for ByLanes {
    fn drop(&mut self) {
        if self.bound.net.is_ours() {
            let _guard = NoPreempt::new();
            self.bound.listening.listener().remove_token(self.token);
        }
    }
}

/// Listens on `addr`, in lanes too if the caller's runtime has any and they can.
pub(super) fn listen(addr: SocketAddr) -> io::Result<Polled<ListenerIo>> {
    match ambient::net()?.filter(|net| net.serves(addr.ip())) {
        Some(net) => listen_by_lanes(net, addr),
        None => {
            let listener = TcpListener::bind(addr)?;
            socket::raise_backlog(&listener)?;
            Polled::adopt(ListenerIo::from(listener))
        }
    }
}

/// What the kernel accepted before lanes do would meet them with its next segments. So the socket is bound, then lanes
/// accept, and then the kernel does.
fn listen_by_lanes(net: Arc<Net>, addr: SocketAddr) -> io::Result<Polled<ListenerIo>> {
    let mut io = Polled::adopt(ListenerIo::from(socket::bind_listener(&addr)?))?;
    let local = io.io().kernel.local_addr()?;
    let (token, source, runtime) = (io.token(), io.source(), ambient::weak()?);
    let listening = {
        let _guard = NoPreempt::new();
        net.listen(clock::now(), local, BACKLOG, token)?
    };
    let bound = Arc::new(Bound { net, local, listening });
    io.io_mut().by_lanes = Some(ByLanes { bound: bound.clone(), token, source, runtime });
    socket::raise_backlog(&io.io().kernel)?;
    bound.net.prove(local, io.io().as_fd())?;
    Ok(io)
}

impl ListenerIo {
    /// Accepts a connection.
    pub(super) fn accept(&self) -> io::Result<(StreamIo, SocketAddr)> {
        match &self.by_lanes {
            None => accept(&self.kernel),
            Some(by_lanes) => by_lanes.accept(&self.kernel),
        }
    }
}

fn accept(listener: &TcpListener) -> io::Result<(StreamIo, SocketAddr)> {
    let (stream, peer) = listener.accept()?;
    rustix::io::ioctl_fionbio(&stream, true)?;
    Ok((StreamIo::from(stream), peer))
}

impl ByLanes {
    fn accept(&self, kernel: &TcpListener) -> io::Result<(StreamIo, SocketAddr)> {
        let Bound { net, listening, local } = &*self.bound;
        lanes::check(net)?;
        let accepted = {
            let _guard = NoPreempt::new();
            let own = lanes::own_of(net);
            let accept = || net.accept(clock::now(), listening, own);
            match accept() {
                None if lanes::take_own(net) => accept(),
                accepted => accepted,
            }
        };
        if let Some((lane, accepted)) = accepted {
            let id = (lane, accepted.id);
            let connection = Connection::accepted((net, self.runtime), id, *local);
            let peer = connection.seen(accepted.remote);
            return Ok((StreamIo::by_lane(connection), peer));
        }
        self.source.ask_kernel(|| accept(kernel))
    }
}

impl AsFd for ListenerIo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kernel.as_fd()
    }
}

impl Deref for ListenerIo {
    type Target = TcpListener;

    fn deref(&self) -> &TcpListener {
        &self.kernel
    }
}

impl From<TcpListener> for ListenerIo {
    fn from(kernel: TcpListener) -> ListenerIo {
        ListenerIo { by_lanes: None, kernel }
    }
}

impl From<ListenerIo> for OwnedFd {
    fn from(io: ListenerIo) -> OwnedFd {
        io.kernel.into()
    }
}

impl SocketIo for ListenerIo {
    type Std = TcpListener;

    fn try_into_std(self) -> io::Result<TcpListener> {
        Ok(self.kernel)
    }

    fn duplicate(&self) -> io::Result<ListenerIo> {
        self.kernel.try_clone().map(ListenerIo::from)
    }

    fn admit(&self, mut clone: Polled<ListenerIo>) -> Polled<ListenerIo> {
        if let Some(by_lanes) = &self.by_lanes {
            let (bound, runtime) = (by_lanes.bound.clone(), by_lanes.runtime);
            let (token, source) = (clone.token(), clone.source());
            {
                let _guard = NoPreempt::new();
                bound.listening.listener().add_token(token);
            }
            clone.io_mut().by_lanes = Some(ByLanes { bound, token, source, runtime });
        }
        clone
    }
}

impl fmt::Debug for ListenerIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}
