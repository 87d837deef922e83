//! TCP.

use super::addr::{ToSocketAddrs, first_that};
use super::{Socket, nonzero};
use crate::now;
use crate::poller::Interest;
use crate::time::within;
use heddle_core::Ns;
use heddle_sys::socket;
use std::io::{self, IoSlice, Read, Write};
use std::net::{self, Shutdown, SocketAddr};
use std::time::Duration;

/// A listening TCP socket.
pub struct TcpListener(pub(super) Socket<net::TcpListener>);

/// A TCP connection.
pub struct TcpStream(pub(super) Socket<net::TcpStream>);

impl TcpListener {
    /// Listens on `addr`. As many connections may wait to be accepted as the system allows (`net.core.somaxconn`, usually 4,096):
    /// with the standard library's 128 a burst makes clients wait for a second.
    ///
    /// # Errors
    /// The system's: the port is taken, the address is not ours.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
        let listener = first_that(addr, net::TcpListener::bind)?;
        socket::raise_backlog(&listener)?;
        TcpListener::from_std(listener)
    }

    /// Takes over a listener of the standard library.
    ///
    /// # Errors
    /// The system's.
    pub fn from_std(listener: net::TcpListener) -> io::Result<TcpListener> {
        listener.set_nonblocking(true)?;
        Socket::new(listener).map(TcpListener)
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// The system's; running out of descriptors is one that passes.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.0.run(Interest::Read, net::TcpListener::accept)?;
        Ok((TcpStream::from_std(stream)?, peer))
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.io.local_addr()
    }
}

impl TcpStream {
    /// Connects to the first of `addr` that answers. A [`crate::timeout`] around it limits looking names up and connecting.
    ///
    /// # Errors
    /// The last address's.
    pub fn connect(addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
        first_that(addr, |addr| connect_until(addr, None))
    }

    /// Connects to `addr`, or gives up after `timeout`.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::TimedOut`] once `timeout` has passed, [`io::ErrorKind::InvalidInput`] where it is zero.
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        connect_until(*addr, Some(now() + nonzero(timeout)?))
    }

    /// Takes over a stream of the standard library.
    ///
    /// # Errors
    /// The system's.
    pub fn from_std(stream: net::TcpStream) -> io::Result<TcpStream> {
        stream.set_nonblocking(true)?;
        Socket::new(stream).map(TcpStream)
    }

    /// A second handle on the same connection.
    ///
    /// # Errors
    /// The system's.
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        TcpStream::from_std(self.0.io.try_clone()?)
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// The system's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.io.peer_addr()
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.io.local_addr()
    }

    /// Sends small writes at once instead of collecting them.
    ///
    /// # Errors
    /// The system's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.io.set_nodelay(nodelay)
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    /// The system's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.io.shutdown(how)
    }

    /// How long a read may wait; `None` for ever. It then fails with `WouldBlock`.
    ///
    /// # Errors
    /// For a timeout of zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(Interest::Read, timeout)
    }

    /// How long a write may wait; `None` for ever. It then fails with `WouldBlock`.
    ///
    /// # Errors
    /// For a timeout of zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(Interest::Write, timeout)
    }
}

/// Connects to `addr` without blocking the kernel thread, until `deadline` at the latest.
fn connect_until(addr: SocketAddr, deadline: Option<Ns>) -> io::Result<TcpStream> {
    within(deadline, io::ErrorKind::TimedOut, |deadline| {
        let start = || {
            let stream = socket::connect(&addr)?;
            Socket::new(stream)
        };
        let socket = match start() {
            Ok(socket) => socket,
            Err(error) => return Some(Err(error)),
        };
        let outcome = || is_connected(&socket.io);
        let connected = socket.registration.run(Interest::Write, deadline, outcome)?;
        Some(connected.map(|()| TcpStream(socket)))
    })
}

/// What became of a connection that was asked for: `WouldBlock` while nothing has. That the socket was reported ready does
/// not say so: the report may have been meant for another (see `poller::source`).
fn is_connected(stream: &net::TcpStream) -> io::Result<()> {
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

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run(Interest::Read, |mut io| io.read(buf))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.run(Interest::Write, |mut io| io.write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.run(Interest::Write, |mut io| io.write_vectored(bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
