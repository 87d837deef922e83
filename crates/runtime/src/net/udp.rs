//! UDP.

use super::addr::{ToSocketAddrs, first_that, first_that_async};
use super::options::{forward, impl_socket, impl_timeouts};
use super::udp_io::{UdpIo, serve_by_lanes};
use crate::io::{Polled, impl_descriptor};
use crate::poller::Interest;
use std::io;
use std::net::{self, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A UDP socket. Any number of tasks may receive on it; each datagram wakes one.
///
/// ```
/// use heddle_rt::net::UdpSocket;
///
/// let (server, client) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
/// client.connect(server.local_addr()?)?;
/// client.send(b"question")?;
///
/// let mut buf = [0; 64];
/// server.peek_from(&mut buf)?; // the datagram stays
/// let (len, peer) = server.recv_from(&mut buf)?;
/// assert_eq!((&buf[..len], peer), (&b"question"[..], client.local_addr()?));
/// server.send_to(b"answer", peer)?;
/// assert_eq!(client.recv(&mut buf)?, 6);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket(pub(super) Polled<UdpIo>);

impl UdpSocket {
    /// Binds to `addr`. Under the runtime's own network (`RuntimeBuilder::net`), lanes serve the port if `addr` is one
    /// of their interface's addresses, or any.
    ///
    /// # Errors
    /// Returns the system's error, such as that the port is in use or that the address is not local.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        let socket = Polled::adopt(UdpIo::from(first_that(addr, net::UdpSocket::bind)?))?;
        serve_by_lanes(socket).map(UdpSocket)
    }

    /// Waits for a datagram. What does not fit into `buf` is lost.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.run(Interest::Read, |io| io.recv_from(buf))
    }

    /// Waits for a datagram and leaves it to be received.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.run(Interest::Read, |io| io.peek_from(buf))
    }

    /// Waits for a datagram from the connected peer. What does not fit into `buf` is lost.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run(Interest::Read, |io| io.recv(buf))
    }

    /// Waits for a datagram from the connected peer and leaves it to be received.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run(Interest::Read, |io| io.peek(buf))
    }

    /// Sends a datagram to the first address of `to`.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn send_to(&self, buf: &[u8], to: impl ToSocketAddrs) -> io::Result<usize> {
        let to = to.to_socket_addrs()?.next().ok_or_else(no_address)?;
        self.0.run(Interest::Write, |io| io.send_to(buf, to))
    }

    /// Waits for a datagram: [`UdpSocket::recv_from`] as a future. It is cancel-safe: a datagram is received in the
    /// poll that returns it. What does not fit into `buf` is lost.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn recv_from_async(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.run_async(Interest::Read, |io| io.recv_from(buf)).await
    }

    /// Waits for a datagram from the connected peer: [`UdpSocket::recv`] as a future. It is cancel-safe: a datagram is
    /// received in the poll that returns it. What does not fit into `buf` is lost.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn recv_async(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run_async(Interest::Read, |io| io.recv(buf)).await
    }

    /// Waits for a datagram and leaves it to be received: [`UdpSocket::peek_from`] as a future. It is cancel-safe.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn peek_from_async(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.run_async(Interest::Read, |io| io.peek_from(buf)).await
    }

    /// Sends a datagram to the first address of `to`: [`UdpSocket::send_to`] as a future. It is cancel-safe: a datagram
    /// is sent in the poll that returns its length.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn send_to_async(&self, buf: &[u8], to: impl ToSocketAddrs) -> io::Result<usize> {
        let to = to.target()?.addrs_async().await?;
        let &to = to.first().ok_or_else(no_address)?;
        self.0.run_async(Interest::Write, |io| io.send_to(buf, to)).await
    }

    /// Sends a datagram to the connected peer: [`UdpSocket::send`] as a future. It is cancel-safe: a datagram is sent
    /// in the poll that returns its length.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn send_async(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.run_async(Interest::Write, |io| io.send(buf)).await
    }

    /// Connects to the first of `to` that the system accepts: [`UdpSocket::connect`] as a future, which waits for the
    /// lookup of a name. It is cancel-safe.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn connect_async(&self, to: impl ToSocketAddrs) -> io::Result<()> {
        first_that_async(to.target(), async |to| self.0.io().connect(to)).await
    }

    /// Sends a datagram to the connected peer.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.run(Interest::Write, |io| io.send(buf))
    }

    /// Connects to the first of `to` that the system accepts: the socket then sends to it and receives from it alone.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn connect(&self, to: impl ToSocketAddrs) -> io::Result<()> {
        first_that(to, |to| self.0.io().connect(to))
    }

    /// Joins the multicast group `multiaddr` on the interface with the address `interface` (`IP_ADD_MEMBERSHIP`).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn join_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.io().join_multicast_v4(multiaddr, interface)
    }

    /// Leaves a multicast group that [`UdpSocket::join_multicast_v4`] joined.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn leave_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.io().leave_multicast_v4(multiaddr, interface)
    }

    /// Joins the multicast group `multiaddr` on the interface with the index `interface`; zero means any
    /// (`IPV6_ADD_MEMBERSHIP`).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn join_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.io().join_multicast_v6(multiaddr, interface)
    }

    /// Leaves a multicast group that [`UdpSocket::join_multicast_v6`] joined.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn leave_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.io().leave_multicast_v6(multiaddr, interface)
    }
}

impl_socket!(UdpSocket, net::UdpSocket);
impl_timeouts!(UdpSocket);
impl_descriptor!(UdpSocket: net::UdpSocket);
forward! { UdpSocket:
    /// Returns the address to which it is bound.
    local_addr() -> SocketAddr;
    /// Returns the address of the connected peer.
    peer_addr() -> SocketAddr;
    /// Allows or forbids sending to broadcast addresses (`SO_BROADCAST`).
    set_broadcast(broadcast: bool) -> ();
    /// Returns whether it may send to broadcast addresses.
    broadcast() -> bool;
    /// Sets the time to live of its datagrams (`IP_TTL`).
    set_ttl(ttl: u32) -> ();
    /// Returns the time to live of its datagrams.
    ttl() -> u32;
    /// Sets whether multicast datagrams that it sends come back to sockets of this machine (`IP_MULTICAST_LOOP`).
    set_multicast_loop_v4(multicast_loop_v4: bool) -> ();
    /// Returns whether multicast datagrams that it sends come back.
    multicast_loop_v4() -> bool;
    /// Sets the time to live of its multicast datagrams; 1, the default, keeps them in the local network
    /// (`IP_MULTICAST_TTL`).
    set_multicast_ttl_v4(multicast_ttl_v4: u32) -> ();
    /// Returns the time to live of its multicast datagrams.
    multicast_ttl_v4() -> u32;
    /// Sets whether multicast datagrams that it sends over IPv6 come back to sockets of this machine
    /// (`IPV6_MULTICAST_LOOP`).
    set_multicast_loop_v6(multicast_loop_v6: bool) -> ();
    /// Returns whether multicast datagrams that it sends over IPv6 come back.
    multicast_loop_v6() -> bool;
}

fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no addresses to send data to")
}
