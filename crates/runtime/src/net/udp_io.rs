//! What a UDP socket does: by the kernel, or by the lanes of the runtime's own network.
//!
//! A socket of the lanes has a socket of the kernel under the same port. That is the proof of the port, receives what
//! does not come by way of the interface (loopback, other interfaces, reassembled fragments), and sends what lanes do
//! not. It is asked only after the poller has reported it.

use super::options::SocketIo;
use crate::ambient;
use crate::io::Polled;
use crate::lanes;
use crate::poller::Source;
use crate::preempt::NoPreempt;
use heddle_netstack::lane::{Sent, Token};
use heddle_netstack::net::Net;
use heddle_netstack::udp;
use heddle_sys::clock;
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A UDP socket: what `net::UdpSocket` waits for.
pub(super) struct UdpIo {
    // Released before the kernel's socket is closed, which is the proof of the port.
    by_lanes: Option<ByLanes>,
    kernel: UdpSocket,
}

/// A handle's part in a socket of the lanes.
struct ByLanes {
    bound: Arc<Bound>,
    token: Token,
    source: &'static Source,
}

/// A port that lanes serve, until the last handle is gone.
struct Bound {
    net: Arc<Net>,
    socket: Arc<udp::UdpSocket>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.net.is_ours() {
            let _guard = NoPreempt::new();
            self.net.unbind_udp(&self.socket);
        }
    }
}

impl Drop for ByLanes {
    fn drop(&mut self) {
        if self.bound.net.is_ours() {
            let _guard = NoPreempt::new();
            self.bound.socket.remove_token(self.token);
        }
    }
}

impl From<UdpSocket> for UdpIo {
    fn from(kernel: UdpSocket) -> UdpIo {
        UdpIo { by_lanes: None, kernel }
    }
}

impl SocketIo for UdpIo {
    type Std = UdpSocket;

    fn try_into_std(self) -> io::Result<UdpSocket> {
        Ok(self.kernel)
    }

    fn duplicate(&self) -> io::Result<UdpIo> {
        self.kernel.try_clone().map(UdpIo::from)
    }

    fn admit(&self, mut clone: Polled<UdpIo>) -> Polled<UdpIo> {
        if let Some(by_lanes) = &self.by_lanes {
            let (bound, token, source) = (by_lanes.bound.clone(), clone.token(), clone.source());
            {
                let _guard = NoPreempt::new();
                bound.socket.add_token(token);
            }
            clone.io_mut().by_lanes = Some(ByLanes { bound, token, source });
        }
        clone
    }
}

impl From<UdpIo> for OwnedFd {
    fn from(io: UdpIo) -> OwnedFd {
        io.kernel.into()
    }
}

impl AsFd for UdpIo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kernel.as_fd()
    }
}

impl Deref for UdpIo {
    type Target = UdpSocket;

    fn deref(&self) -> &UdpSocket {
        &self.kernel
    }
}

impl fmt::Debug for UdpIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}

/// Lets the lanes of the caller's runtime serve `socket`, which has just been bound, if there are any and they can.
pub(super) fn serve_by_lanes(mut socket: Polled<UdpIo>) -> io::Result<Polled<UdpIo>> {
    let Some(net) = ambient::net()? else { return Ok(socket) };
    let local = socket.io().kernel.local_addr()?;
    if !net.serves(local.ip()) {
        return Ok(socket);
    }
    let (token, source) = (socket.token(), socket.source());
    let bound = {
        let _guard = NoPreempt::new();
        net.bind_udp(local, socket.io().as_fd(), token)?
    };
    let bound = Arc::new(Bound { net, socket: bound });
    socket.io_mut().by_lanes = Some(ByLanes { bound, token, source });
    Ok(socket)
}

impl UdpIo {
    pub(super) fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match &self.by_lanes {
            None => self.kernel.recv_from(buf),
            Some(by_lanes) => by_lanes.receive(&self.kernel, buf, false),
        }
    }

    pub(super) fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match &self.by_lanes {
            None => self.kernel.peek_from(buf),
            Some(by_lanes) => by_lanes.receive(&self.kernel, buf, true),
        }
    }

    pub(super) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        match &self.by_lanes {
            None => self.kernel.recv(buf),
            Some(by_lanes) => Ok(by_lanes.receive(&self.kernel, buf, false)?.0),
        }
    }

    pub(super) fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        match &self.by_lanes {
            None => self.kernel.peek(buf),
            Some(by_lanes) => Ok(by_lanes.receive(&self.kernel, buf, true)?.0),
        }
    }

    pub(super) fn send_to(&self, buf: &[u8], to: SocketAddr) -> io::Result<usize> {
        match &self.by_lanes {
            None => self.kernel.send_to(buf, to),
            Some(by_lanes) => by_lanes.send(&self.kernel, buf, to),
        }
    }

    pub(super) fn send(&self, buf: &[u8]) -> io::Result<usize> {
        match &self.by_lanes {
            None => self.kernel.send(buf),
            Some(by_lanes) => by_lanes.send(&self.kernel, buf, by_lanes.peer()?),
        }
    }

    /// Connects the socket: only datagrams of `peer` are received. The kernel's socket stays unconnected, because that
    /// would give up the port to others.
    pub(super) fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        let Some(by_lanes) = &self.by_lanes else { return self.kernel.connect(peer) };
        let local = self.kernel.local_addr()?;
        if local.is_ipv4() && peer.is_ipv6() {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        let _guard = NoPreempt::new();
        by_lanes.bound.socket.connect(peer);
        Ok(())
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match &self.by_lanes {
            None => self.kernel.peer_addr(),
            Some(by_lanes) => by_lanes.peer(),
        }
    }

    /// Returns the address to which it is bound; once it is connected, that from which it sends.
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        let local = self.kernel.local_addr()?;
        let Some(by_lanes) = &self.by_lanes else { return Ok(local) };
        if !local.ip().is_unspecified() {
            return Ok(local);
        }
        let source = by_lanes.peer().ok().and_then(|peer| {
            let snapshot = by_lanes.bound.net.control().snapshot();
            snapshot.source_for(peer.ip())
        });
        let address = source.map_or(local, |ip| SocketAddr::new(ip, local.port()));
        Ok(udp::as_seen_by(local, address))
    }
}

impl ByLanes {
    fn peer(&self) -> io::Result<SocketAddr> {
        let _guard = NoPreempt::new();
        self.bound.socket.peer().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn receive(
        &self,
        kernel: &UdpSocket,
        buf: &mut [u8],
        peek: bool,
    ) -> io::Result<(usize, SocketAddr)> {
        lanes::check(&self.bound.net)?;
        let found = {
            let _guard = NoPreempt::new();
            let socket = &self.bound.socket;
            if socket.take_refusal() {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            // What has arrived and no worker has seen yet needs no wake-up.
            match socket.receive(buf, peek) {
                None if lanes::take_own(&self.bound.net) => socket.receive(buf, peek),
                found => found,
            }
        };
        match found {
            Some(found) => Ok(found),
            None => self.receive_from_kernel(kernel, buf, peek),
        }
    }

    fn receive_from_kernel(
        &self,
        kernel: &UdpSocket,
        buf: &mut [u8],
        peek: bool,
    ) -> io::Result<(usize, SocketAddr)> {
        loop {
            let found = self.source.ask_kernel(|| match peek {
                true => kernel.peek_from(buf),
                false => kernel.recv_from(buf),
            });
            let Ok((_, from)) = found else { return found };
            match self.peer() {
                Ok(peer) if peer != from => {
                    // The kernel's socket is not connected: it takes datagrams of all.
                    if peek {
                        let _ = kernel.recv_from(&mut [0]);
                    }
                }
                _ => return found,
            }
        }
    }

    fn send(&self, kernel: &UdpSocket, buf: &[u8], to: SocketAddr) -> io::Result<usize> {
        let Bound { net, socket } = &*self.bound;
        lanes::check(net)?;
        let sent = {
            let _guard = NoPreempt::new();
            if socket.take_refusal() {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (lane, more) = (&net.lanes()[lanes::own_of(net)], ambient::are_more_expected(net));
            lane.send_udp(clock::now, socket, buf, to, more)
        };
        match sent {
            Sent::Sent => Ok(buf.len()),
            // The kernel's socket waits until there is room.
            Sent::Full | Sent::ByKernel => kernel.send_to(buf, to),
        }
    }
}
