//! UDP.

use super::Socket;
use super::addr::{ToSocketAddrs, first_that};
use crate::poller::Interest;
use std::io;
use std::net::{self, SocketAddr};
use std::time::Duration;

/// A UDP socket. Any number of tasks may receive on it; each datagram wakes one.
pub struct UdpSocket(pub(super) Socket<net::UdpSocket>);

impl UdpSocket {
    /// Binds to `addr`.
    ///
    /// # Errors
    /// The system's: the port is taken, the address is not ours.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        UdpSocket::from_std(first_that(addr, net::UdpSocket::bind)?)
    }

    /// Takes over a socket of the standard library.
    ///
    /// # Errors
    /// The system's.
    pub fn from_std(socket: net::UdpSocket) -> io::Result<UdpSocket> {
        socket.set_nonblocking(true)?;
        Socket::new(socket).map(UdpSocket)
    }

    /// Waits for a datagram.
    ///
    /// # Errors
    /// The system's.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.run(Interest::Read, |io| io.recv_from(buf))
    }

    /// Waits for a datagram from the connected peer.
    ///
    /// # Errors
    /// The system's.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run(Interest::Read, |io| io.recv(buf))
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// The system's.
    pub fn send_to(&self, buf: &[u8], to: impl ToSocketAddrs) -> io::Result<usize> {
        let none = || io::Error::new(io::ErrorKind::InvalidInput, "no address to send to");
        let to = to.to_socket_addrs()?.next().ok_or_else(none)?;
        self.0.run(Interest::Write, |io| io.send_to(buf, to))
    }

    /// Sends a datagram to the connected peer.
    ///
    /// # Errors
    /// The system's.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.run(Interest::Write, |io| io.send(buf))
    }

    /// Fixes the peer.
    ///
    /// # Errors
    /// The system's.
    pub fn connect(&self, to: impl ToSocketAddrs) -> io::Result<()> {
        first_that(to, |to| self.0.io.connect(to))
    }

    /// The address to which it is bound.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.io.local_addr()
    }

    /// How long a receive may wait; `None` for ever. It then fails with `WouldBlock`.
    ///
    /// # Errors
    /// For a timeout of zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(Interest::Read, timeout)
    }
}
