//! TCP; the types are re-exported by [`crate::net`].

use super::addr::{ToSocketAddrs, first_that, first_that_async};
use super::connect;
use super::listener_io::{ListenerIo, listen};
use super::options::{forward, impl_socket, impl_timeouts};
use super::stream_io::StreamIo;
use crate::io::{
    Polled, impl_async_read, impl_async_write, impl_descriptor, impl_read, impl_write, nonzero,
};
use crate::poller::Interest;
use crate::time::now;
use heddle_core::Ns;
use std::io;
use std::net::{self, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The half of a [`TcpStream`] that reads; see [`TcpStream::into_split`].
pub type OwnedReadHalf = super::OwnedReadHalf<TcpStream>;

/// The half of a [`TcpStream`] that writes; see [`TcpStream::into_split`].
pub type OwnedWriteHalf = super::OwnedWriteHalf<TcpStream>;

/// A listening TCP socket.
///
/// ```
/// use heddle_rt::net::{TcpListener, TcpStream};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let client = TcpStream::connect(listener.local_addr()?)?;
/// let (_server, peer) = listener.accept()?;
/// assert_eq!(peer, client.local_addr()?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpListener(pub(super) Polled<ListenerIo>);

/// A TCP connection.
///
/// ```
/// use heddle_rt::net::{TcpListener, TcpStream};
/// use std::io::{IoSlice, Read as _, Write as _};
/// use std::time::Duration;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let timeout = Duration::from_secs(10);
/// let mut client = TcpStream::connect_timeout(&listener.local_addr()?, timeout)?;
/// let (mut server, _) = listener.accept()?;
/// let sent = client.write_vectored(&[IoSlice::new(b"head"), IoSlice::new(b"body")])?;
///
/// let mut buf = [0; 8];
/// server.peek(&mut buf)?; // the bytes stay
/// server.read_exact(&mut buf[..sent])?;
/// assert!(b"headbody".starts_with(&buf[..sent]));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpStream(pub(crate) Polled<StreamIo>);

impl TcpListener {
    /// Listens on `addr`. As many connections may wait to be accepted as the system allows (`net.core.somaxconn`,
    /// usually 4,096): with the standard library's 128 a burst makes clients wait for a second.
    ///
    /// # Errors
    /// Returns the system's error, such as that the port is in use or that the address is not local.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
        first_that(addr, listen).map(TcpListener)
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// Returns the system's error. Running out of descriptors is one that passes.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.run(Interest::Read, ListenerIo::accept).and_then(TcpStream::accepted)
    }

    /// Waits for a connection: [`TcpListener::accept`] as a future. It is cancel-safe: a connection is accepted in the
    /// poll that returns it. Any number of tasks may wait; each connection wakes one.
    ///
    /// # Errors
    /// Returns the system's error. Running out of descriptors is one that passes.
    pub async fn accept_async(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.run_async(Interest::Read, ListenerIo::accept).await.and_then(TcpStream::accepted)
    }

    /// Accepts a connection; if there is none, the waker of `cx` is called once there may be. The waker of the latest
    /// call counts.
    ///
    /// # Errors
    /// Returns the system's error. Running out of descriptors is one that passes.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let accepted = ready!(self.0.poll_io(Interest::Read, cx, ListenerIo::accept));
        Poll::Ready(accepted.and_then(TcpStream::accepted))
    }

    /// Returns an endless iterator over the connections that come, like a loop that calls [`TcpListener::accept`].
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }
}

impl_socket!(TcpListener, net::TcpListener);
forward! { TcpListener:
    /// Returns the address on which it listens.
    local_addr() -> SocketAddr;
    /// Sets the time to live (hop limit) of the packets of accepted connections (`IP_TTL`).
    set_ttl(ttl: u32) -> ();
    /// Returns the time to live that [`TcpListener::set_ttl`] sets.
    ttl() -> u32;
}

/// The connections of a listener; see [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a>(&'a TcpListener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}

impl TcpStream {
    fn accepted((io, peer): (StreamIo, SocketAddr)) -> io::Result<(TcpStream, SocketAddr)> {
        Ok((TcpStream::new(io)?, peer))
    }

    fn new(io: StreamIo) -> io::Result<TcpStream> {
        let stream = Polled::new(io)?;
        stream.io().set_token(stream.token());
        Ok(TcpStream(stream))
    }

    /// Returns the socket that the kernel has of it: `None` if a lane of the runtime's own network serves the
    /// connection ([`crate::RuntimeBuilder::net`]).
    pub fn kernel_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.io().kernel().map(AsFd::as_fd)
    }

    /// Connects to the first of `addr` that answers. A [`crate::timeout`] around it limits both the name lookup and
    /// the connection.
    ///
    /// # Errors
    /// Returns the error of the last address.
    pub fn connect(addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
        first_that(addr, |addr| connect_until(addr, None))
    }

    /// Connects to the first of `addr` that answers: [`TcpStream::connect`] as a future. Names are looked up in threads
    /// that exist for this. It is cancel-safe: if it is dropped, the connection is not made, or closed.
    ///
    /// ```
    /// use heddle_rt::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let addr = listener.local_addr()?;
    /// let serves = heddle_rt::spawn(move || heddle_rt::block_on(async {
    ///     let (stream, _) = listener.accept_async().await?;
    ///     stream.write_async(b"hello").await
    /// }));
    /// let mut text = [0; 5];
    /// heddle_rt::block_on(async {
    ///     let stream = TcpStream::connect_async(("localhost", addr.port())).await?;
    ///     stream.read_async(&mut text).await
    /// })?;
    /// assert_eq!(&text, b"hello");
    /// # serves.join().unwrap()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the error of the last address.
    pub async fn connect_async(addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
        first_that_async(addr.target(), connect_async).await
    }

    /// Connects to `addr`, or gives up after `timeout`.
    ///
    /// # Errors
    /// Returns the system's error; [`TimedOut`](io::ErrorKind::TimedOut) once `timeout` has passed;
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if it is zero.
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        connect_until(*addr, Some(now() + nonzero(timeout)?))
    }

    /// Waits for data and copies it to `buf`, but leaves it to be read. Returns how many bytes it copied: zero at
    /// the end.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run(Interest::Read, |io| io.peek(buf))
    }

    /// Waits for data and copies it to `buf`, but leaves it to be read: [`TcpStream::peek`] as a future. It is
    /// cancel-safe.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn peek_async(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run_async(Interest::Read, |io| io.peek(buf)).await
    }

    /// Makes closing the stream reset the connection (`SO_LINGER` of zero): what the other end has not read is dropped.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.0.io().set_zero_linger()
    }

    /// Ends the direction of writing, unless the connection is gone already.
    pub(super) fn close_write(&self) -> io::Result<()> {
        unless_gone(self.shutdown(Shutdown::Write))
    }
}

impl_socket!(TcpStream, net::TcpStream);
impl_timeouts!(TcpStream);
impl_read!(TcpStream);
impl_write!(TcpStream);
impl_async_read!(TcpStream);
impl_async_write!(TcpStream: TcpStream::close_write);
impl_descriptor!(TcpListener: net::TcpListener);

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.io().fmt(f)
    }
}

impl TryFrom<net::TcpStream> for TcpStream {
    type Error = io::Error;

    fn try_from(stream: net::TcpStream) -> io::Result<TcpStream> {
        TcpStream::from_std(stream)
    }
}

/// The descriptor must be that of a TCP connection, which is not checked.
impl TryFrom<OwnedFd> for TcpStream {
    type Error = io::Error;

    fn try_from(fd: OwnedFd) -> io::Result<TcpStream> {
        TcpStream::from_std(fd.into())
    }
}

/// Deregisters it and puts the descriptor back into blocking mode. Fails if a lane serves the connection: the kernel
/// has no socket of it.
impl TryFrom<TcpStream> for OwnedFd {
    type Error = io::Error;

    fn try_from(stream: TcpStream) -> io::Result<OwnedFd> {
        stream.set_nonblocking(false)?;
        stream.into_std().map(OwnedFd::from)
    }
}

forward! { TcpStream:
    /// Returns the address of the other end.
    peer_addr() -> SocketAddr;
    /// Returns the address of this end.
    local_addr() -> SocketAddr;
    /// Sets whether small writes are sent at once (`TCP_NODELAY`) instead of being collected.
    set_nodelay(nodelay: bool) -> ();
    /// Returns whether small writes are sent at once.
    nodelay() -> bool;
    /// Sets the time to live (hop limit) of its packets (`IP_TTL`).
    set_ttl(ttl: u32) -> ();
    /// Returns the time to live of its packets.
    ttl() -> u32;
    /// Shuts down one direction or both. Waiting reads see the end.
    shutdown(how: Shutdown) -> ();
}

/// Connects to `addr` without blocking the kernel thread, until `deadline` at the latest.
fn connect_until(addr: SocketAddr, deadline: Option<Ns>) -> io::Result<TcpStream> {
    let stream = TcpStream::new(connect::begin(addr, deadline)?)?;
    let late = io::ErrorKind::TimedOut;
    stream.0.run_until(Interest::Write, deadline, late, StreamIo::is_connected)?;
    Ok(stream)
}

/// Like [`connect_until`], as a future.
async fn connect_async(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::new(connect::begin_async(addr).await?)?;
    stream.0.run_async(Interest::Write, StreamIo::is_connected).await?;
    Ok(stream)
}

/// The result of shutting a connection down, which succeeds if there is none any more.
pub(super) fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        result => result,
    }
}
