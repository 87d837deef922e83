//! Unix datagram sockets.

use super::SocketAddr;
use crate::io::{Polled, impl_descriptor};
use crate::net::options::{forward, impl_socket, impl_timeouts};
use crate::net::retry::{retry, retry_async};
use crate::poller::Interest;
use crate::time::now;
use std::io;
use std::net::Shutdown;
use std::os::unix::net;
use std::path::Path;

/// A Unix datagram socket. Datagrams arrive whole, in order and without loss: a sender waits while the receiver's
/// queue is full.
///
/// ```
/// use heddle_rt::net::unix::UnixDatagram;
///
/// let (here, there) = UnixDatagram::pair()?;
/// here.send(b"first")?;
/// here.send(b"second")?;
/// let mut buf = [0; 64];
/// assert_eq!((there.recv(&mut buf)?, &buf[..5]), (5, &b"first"[..]));
/// assert_eq!((there.recv(&mut buf)?, &buf[..6]), (6, &b"second"[..]));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixDatagram(Polled<net::UnixDatagram>);

impl UnixDatagram {
    /// Creates a socket file at `path` and binds to it. Dropping the socket does not remove the file.
    ///
    /// # Errors
    /// Returns the system's error: [`AddrInUse`](io::ErrorKind::AddrInUse) if there is such a file.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
        Polled::adopt(net::UnixDatagram::bind(path)?).map(UnixDatagram)
    }

    /// Binds to `addr`, which may be an abstract name.
    ///
    /// # Errors
    /// Returns the system's error: [`AddrInUse`](io::ErrorKind::AddrInUse) if the name is in use.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixDatagram> {
        Polled::adopt(net::UnixDatagram::bind_addr(addr)?).map(UnixDatagram)
    }

    /// Creates a socket without an address: it can send.
    ///
    /// # Errors
    /// Fails if the process has no descriptors left.
    pub fn unbound() -> io::Result<UnixDatagram> {
        Polled::adopt(net::UnixDatagram::unbound()?).map(UnixDatagram)
    }

    /// Creates two sockets that are connected with each other.
    ///
    /// # Errors
    /// Fails if the process has no descriptors left.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (a, b) = net::UnixDatagram::pair()?;
        Ok((UnixDatagram(Polled::adopt(a)?), UnixDatagram(Polled::adopt(b)?)))
    }

    /// Connects to the socket at `path`: the socket then sends to it and receives from it alone.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.io().connect(path)
    }

    /// Waits for a datagram. What does not fit into `buf` is lost.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.run(Interest::Read, |io| io.recv_from(buf))
    }

    /// Waits for a datagram from the connected peer. What does not fit into `buf` is lost.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run(Interest::Read, |io| io.recv(buf))
    }

    /// Waits for a datagram and leaves it to be received. Returns how many of its bytes are in `buf`.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run(Interest::Read, |io| super::peek(io, buf))
    }

    /// Sends a datagram to the connected peer; waits while its queue is full.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.run(Interest::Write, |io| io.send(buf))
    }

    /// Sends a datagram to the socket at `path`; waits while its queue is full.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.send_to_addr(buf, &SocketAddr::from_pathname(path)?)
    }

    /// Sends a datagram to `addr`, which may be an abstract name; waits while its queue is full.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        let send = || self.0.io().send_to_addr(buf, addr);
        if self.0.is_nonblocking() {
            return send();
        }
        // The kernel announces room in this socket's buffer, but not in the queue of a peer that it is not
        // connected to.
        let deadline = self.0.timeout(Interest::Write).map(|timeout| now() + timeout.into());
        retry(deadline, io::ErrorKind::WouldBlock, send)
    }

    /// Waits for a datagram: [`UnixDatagram::recv_from`] as a future. It is cancel-safe: a datagram is received in the
    /// poll that returns it. What does not fit into `buf` is lost.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn recv_from_async(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.run_async(Interest::Read, |io| io.recv_from(buf)).await
    }

    /// Waits for a datagram from the connected peer: [`UnixDatagram::recv`] as a future. It is cancel-safe: a datagram
    /// is received in the poll that returns it. What does not fit into `buf` is lost.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn recv_async(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run_async(Interest::Read, |io| io.recv(buf)).await
    }

    /// Waits for a datagram and leaves it to be received: [`UnixDatagram::peek`] as a future. It is cancel-safe.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn peek_async(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run_async(Interest::Read, |io| super::peek(io, buf)).await
    }

    /// Sends a datagram to the connected peer; a future that waits while its queue is full. It is cancel-safe: a
    /// datagram is sent in the poll that returns its length.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn send_async(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.run_async(Interest::Write, |io| io.send(buf)).await
    }

    /// Sends a datagram to the socket at `path`; see [`UnixDatagram::send_to_addr_async`].
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn send_to_async(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let addr = SocketAddr::from_pathname(path)?;
        self.send_to_addr_async(buf, &addr).await
    }

    /// Sends a datagram to `addr`, which may be an abstract name; a future that waits while its queue is full. It is
    /// cancel-safe: a datagram is sent in the poll that returns its length.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn send_to_addr_async(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        retry_async(|| self.0.io().send_to_addr(buf, addr)).await
    }
}

impl_socket!(UnixDatagram, net::UnixDatagram);
impl_timeouts!(UnixDatagram);
impl_descriptor!(UnixDatagram: net::UnixDatagram);
forward! { UnixDatagram:
    /// Connects to `addr`, which may be an abstract name.
    connect_addr(addr: &SocketAddr) -> ();
    /// Returns the address to which it is bound.
    local_addr() -> SocketAddr;
    /// Returns the address of the connected peer.
    peer_addr() -> SocketAddr;
    /// Shuts down one direction or both. Waiting receivers see an empty datagram.
    shutdown(how: Shutdown) -> ();
}
