//! What a TCP connection does: by the kernel, or by a lane of the runtime's own network.

use super::options::SocketIo;
use crate::ambient;
use crate::engine::WeakRuntime;
#[cfg(any(feature = "hyper", feature = "tokio-io"))]
use crate::io::ReadUninit;
use crate::io::{Polled, Readiness};
use crate::lanes;
use crate::preempt::NoPreempt;
use heddle_core::Ns;
use heddle_netstack::lane::{Called, Lane, Token};
use heddle_netstack::net::Net;
use heddle_netstack::wire::XskWire;
use heddle_netstack::{ConnectionId, Shutdown as Direction, TcpError};
use heddle_sys::clock;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
#[cfg(any(feature = "hyper", feature = "tokio-io"))]
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A TCP connection: what `net::TcpStream` waits for.
pub(crate) enum StreamIo {
    /// A socket of the kernel.
    Kernel(TcpStream),
    /// A connection of a lane.
    Lane(LaneStream),
}

/// A handle of a connection of a lane.
pub(crate) struct LaneStream(Arc<Connection>);

/// A connection of a lane, closed with the last handle.
pub(super) struct Connection {
    net: Arc<Net>,
    runtime: WeakRuntime,
    lane: usize,
    id: ConnectionId,
    /// The socket of the kernel that has the port of an outgoing connection.
    port: Option<OwnedFd>,
    /// Its listener is one of IPv6, which shows IPv4 addresses as mapped.
    is_mapped: bool,
}

impl Connection {
    /// Returns the connection `id` of `lane`, which a listener on `listening` has accepted.
    pub(super) fn accepted(
        (net, runtime): (&Arc<Net>, WeakRuntime),
        (lane, id): (usize, ConnectionId),
        listening: SocketAddr,
    ) -> Connection {
        let is_mapped = listening.is_ipv6();
        Connection { net: Arc::clone(net), runtime, lane, id, port: None, is_mapped }
    }

    /// Returns the outgoing connection `id` of `lane`, whose port the kernel's socket `port` has.
    pub(super) fn outgoing(
        (net, runtime): (&Arc<Net>, WeakRuntime),
        (lane, id): (usize, ConnectionId),
        port: OwnedFd,
    ) -> Connection {
        let net = Arc::clone(net);
        Connection { net, runtime, lane, id, port: Some(port), is_mapped: false }
    }

    /// Returns this end and the other. The lane has them, as long as there is a handle.
    fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        lanes::check(&self.net)?;
        let _guard = NoPreempt::new();
        let (local, remote) = self.lane().ends(self.id).map_err(error)?;
        Ok((self.seen(local), self.seen(remote)))
    }

    /// Returns `addr` as the program is shown it.
    pub(super) fn seen(&self, addr: SocketAddr) -> SocketAddr {
        match addr {
            SocketAddr::V4(v4) if self.is_mapped => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
            _ => addr,
        }
    }

    fn lane(&self) -> &Lane<XskWire> {
        &self.net.lanes()[self.lane]
    }

    /// Makes a call on the connection, and notifies a worker that sleeps until a timer if there is an earlier one.
    fn call<R>(&self, call: impl FnOnce(&Lane<XskWire>, Ns) -> Called<R>) -> R {
        let _guard = NoPreempt::new();
        result_of(self.runtime, call(self.lane(), clock::now()))
    }

    fn result<R>(
        &self,
        call: impl FnOnce(&Lane<XskWire>, Ns) -> Called<Result<R, TcpError>>,
    ) -> io::Result<R> {
        lanes::check(&self.net)?;
        self.call(call).map_err(error)
    }
}

/// Returns the result of a call on a lane of `runtime`. A worker that sleeps until a timer hears of an earlier one.
pub(super) fn result_of<R>(runtime: WeakRuntime, called: Called<R>) -> R {
    if called.is_earlier {
        runtime.with(|core| core.timer_is_earlier());
    }
    called.result
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.net.is_ours() {
            return;
        }
        // The lane forgets them with the connection.
        let outgoing = self.port.take().and_then(|port| Some((port, self.ends().ok()?)));
        self.call(|lane, now| lane.close(now, self.id, false));
        if let Some((port, ends)) = outgoing {
            let _guard = NoPreempt::new();
            self.net.retire_outgoing(self.lane, ends, port);
        }
    }
}

/// Returns the system's error for what a lane says.
fn error(error: TcpError) -> io::Error {
    let kind = match error {
        TcpError::WouldBlock => return io::ErrorKind::WouldBlock.into(),
        TcpError::NotConnected | TcpError::Stale => io::ErrorKind::NotConnected,
        TcpError::WriteShutdown => io::ErrorKind::BrokenPipe,
        TcpError::Reset => io::ErrorKind::ConnectionReset,
        TcpError::Refused => io::ErrorKind::ConnectionRefused,
        TcpError::TimedOut => io::ErrorKind::TimedOut,
        TcpError::Unreachable => io::ErrorKind::HostUnreachable,
        TcpError::Aborted => io::ErrorKind::ConnectionAborted,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl StreamIo {
    /// Returns a handle of `connection`.
    pub(super) fn by_lane(connection: Connection) -> StreamIo {
        StreamIo::Lane(LaneStream(Arc::new(connection)))
    }

    /// Returns the socket of the kernel, if it has one.
    pub(super) fn kernel(&self) -> Option<&TcpStream> {
        match self {
            StreamIo::Kernel(stream) => Some(stream),
            StreamIo::Lane(_) => None,
        }
    }

    /// Reports what happens to the connection with `token`.
    pub(super) fn set_token(&self, token: Token) {
        if let StreamIo::Lane(LaneStream(connection)) = self {
            let _guard = NoPreempt::new();
            connection.lane().set_token(connection.id, Some(token));
        }
    }

    /// Returns the outcome of a connection attempt, `WouldBlock` while there is none. A report of readiness alone does
    /// not mean that there is: it may have been meant for another socket (see `poller::source`).
    pub(super) fn is_connected(&self) -> io::Result<()> {
        match self {
            StreamIo::Kernel(stream) => is_connected(stream),
            StreamIo::Lane(LaneStream(connection)) => {
                let _guard = NoPreempt::new();
                match connection.lane().is_connected(connection.id) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
                    Err(failure) => Err(error(failure)),
                }
            }
        }
    }

    pub(super) fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            StreamIo::Kernel(stream) => stream.peek(buf),
            StreamIo::Lane(stream) => stream.receive(|lane, _, id| lane.peek(id, buf)),
        }
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let connection = match self {
            StreamIo::Kernel(stream) => return stream.shutdown(how),
            StreamIo::Lane(LaneStream(connection)) => connection,
        };
        let how = match how {
            Shutdown::Read => Direction::Read,
            Shutdown::Write => Direction::Write,
            Shutdown::Both => Direction::Both,
        };
        connection.result(|lane, now| lane.shutdown(now, connection.id, how))
    }

    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            StreamIo::Kernel(stream) => stream.take_error(),
            StreamIo::Lane(LaneStream(connection)) => {
                let _guard = NoPreempt::new();
                Ok(connection.lane().take_error(connection.id).map(error))
            }
        }
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            StreamIo::Kernel(stream) => stream.local_addr(),
            StreamIo::Lane(LaneStream(connection)) => Ok(connection.ends()?.0),
        }
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            StreamIo::Kernel(stream) => stream.peer_addr(),
            StreamIo::Lane(LaneStream(connection)) => Ok(connection.ends()?.1),
        }
    }

    pub(super) fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self {
            StreamIo::Kernel(stream) => stream.set_nodelay(nodelay),
            StreamIo::Lane(LaneStream(connection)) => {
                connection.result(|lane, now| lane.set_nodelay(now, connection.id, nodelay))
            }
        }
    }

    pub(super) fn nodelay(&self) -> io::Result<bool> {
        match self {
            StreamIo::Kernel(stream) => stream.nodelay(),
            StreamIo::Lane(LaneStream(connection)) => {
                let _guard = NoPreempt::new();
                connection.lane().nodelay(connection.id).map_err(error)
            }
        }
    }

    /// Makes closing the connection reset it.
    pub(super) fn set_zero_linger(&self) -> io::Result<()> {
        match self {
            StreamIo::Kernel(stream) => {
                Ok(rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?)
            }
            StreamIo::Lane(LaneStream(connection)) => {
                let _guard = NoPreempt::new();
                connection.lane().set_close_reset(connection.id).map_err(error)
            }
        }
    }

    pub(super) fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.kernel().ok_or_else(no_socket)?.set_ttl(ttl)
    }

    pub(super) fn ttl(&self) -> io::Result<u32> {
        self.kernel().ok_or_else(no_socket)?.ttl()
    }
}

/// What only sockets of the kernel can do.
fn no_socket() -> io::Error {
    let text = "a lane serves the connection, and the kernel has no socket of it";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

fn is_connected(stream: &TcpStream) -> io::Result<()> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        peer => peer.map(drop),
    }
}

impl LaneStream {
    /// Receives; if there is nothing, looks at the lane first: what has arrived needs no wake-up.
    fn receive(
        &self,
        mut receive: impl FnMut(&Lane<XskWire>, Ns, ConnectionId) -> Result<usize, TcpError>,
    ) -> io::Result<usize> {
        let connection = &*self.0;
        lanes::check(&connection.net)?;
        let _guard = NoPreempt::new();
        let mut attempt = || receive(connection.lane(), clock::now(), connection.id);
        let received = match attempt() {
            Err(TcpError::WouldBlock) if lanes::take_from(&connection.net, connection.lane) => {
                attempt()
            }
            received => received,
        };
        received.map_err(error)
    }

    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let runtime = self.0.runtime;
        self.receive(|lane, now, id| result_of(runtime, lane.read(now, id, buf)))
    }

    fn write<'a>(&self, bufs: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        self.0.result(|lane, now| {
            lane.write(now, self.0.id, bufs, ambient::are_more_expected(&self.0.net))
        })
    }
}

impl Read for &StreamIo {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            StreamIo::Kernel(stream) => (&*stream).read(buf),
            StreamIo::Lane(_) if buf.is_empty() => Ok(0),
            StreamIo::Lane(stream) => stream.read(buf),
        }
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let stream = match self {
            StreamIo::Kernel(stream) => return (&*stream).read_vectored(bufs),
            StreamIo::Lane(stream) => stream,
        };
        let mut total = 0;
        for buf in bufs.iter_mut().filter(|buf| !buf.is_empty()) {
            match stream.read(buf) {
                Ok(count) if count == buf.len() => total += count,
                Ok(count) => return Ok(total + count),
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }
}

impl Write for &StreamIo {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            StreamIo::Kernel(stream) => (&*stream).write(buf),
            StreamIo::Lane(stream) => stream.write(std::iter::once(buf)),
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            StreamIo::Kernel(stream) => (&*stream).write_vectored(bufs),
            StreamIo::Lane(stream) => stream.write(bufs.iter().map(|buf| &**buf)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Readiness for StreamIo {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.kernel().map(AsFd::as_fd)
    }
}

#[cfg(any(feature = "hyper", feature = "tokio-io"))]
impl ReadUninit for StreamIo {
    fn read_uninit(&self, buf: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        match self {
            StreamIo::Kernel(stream) => stream.read_uninit(buf),
            StreamIo::Lane(_) => {
                buf.fill(MaybeUninit::new(0));
                // SAFETY: all bytes have just been initialised.
                let bytes =
                    unsafe { std::slice::from_raw_parts_mut(buf.as_mut_ptr().cast(), buf.len()) };
                (&mut &*self).read(bytes)
            }
        }
    }
}

impl From<TcpStream> for StreamIo {
    fn from(stream: TcpStream) -> StreamIo {
        StreamIo::Kernel(stream)
    }
}

impl SocketIo for StreamIo {
    type Std = TcpStream;

    fn try_into_std(self) -> io::Result<TcpStream> {
        match self {
            StreamIo::Kernel(stream) => Ok(stream),
            StreamIo::Lane(_) => Err(no_socket()),
        }
    }

    fn duplicate(&self) -> io::Result<StreamIo> {
        match self {
            StreamIo::Kernel(stream) => stream.try_clone().map(StreamIo::Kernel),
            StreamIo::Lane(stream) => Ok(StreamIo::Lane(LaneStream(stream.0.clone()))),
        }
    }

    fn admit(&self, clone: Polled<StreamIo>) -> Polled<StreamIo> {
        if let StreamIo::Lane(LaneStream(connection)) = self {
            let _guard = NoPreempt::new();
            connection.lane().add_token(connection.id, clone.token());
        }
        clone
    }
}

impl fmt::Debug for StreamIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamIo::Kernel(stream) => stream.fmt(f),
            StreamIo::Lane(LaneStream(connection)) => {
                let mut debug = f.debug_struct("TcpStream");
                if let Ok((local, remote)) = connection.ends() {
                    debug.field("addr", &local).field("peer", &remote);
                }
                debug.field("lane", &connection.lane).finish()
            }
        }
    }
}
