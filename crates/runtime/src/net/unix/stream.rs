//! Unix stream sockets.

use super::{SocketAddr, UCred};
use crate::io::{
    Polled, impl_async_read, impl_async_write, impl_descriptor, impl_read, impl_write,
};
use crate::net::options::{forward, impl_socket, impl_timeouts};
use crate::net::retry::{retry, retry_async};
use crate::net::tcp::unless_gone;
use crate::poller::Interest;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net;
use std::path::Path;
use std::task::{Context, Poll, ready};

/// A listening Unix socket. Dropping it does not remove its file.
///
/// ```
/// use heddle_rt::net::unix::{SocketAddr, UnixListener, UnixStream};
/// use std::os::linux::net::SocketAddrExt as _;
///
/// // An abstract name: no file, gone with the listener.
/// let name = SocketAddr::from_abstract_name(format!("heddle-doc-{}", std::process::id()))?;
/// let listener = UnixListener::bind_addr(&name)?;
/// let _client = UnixStream::connect_addr(&name)?;
/// let _server = listener.incoming().next().unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixListener(Polled<net::UnixListener>);

/// A Unix stream socket.
///
/// ```
/// use heddle_rt::net::unix::UnixStream;
/// use std::io::{Read as _, Write as _};
///
/// let (mut here, mut there) = UnixStream::pair()?;
/// here.write_all(b"hello")?;
/// let mut text = [0; 5];
/// there.read_exact(&mut text)?;
/// assert_eq!(&text, b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixStream(pub(crate) Polled<net::UnixStream>);

impl UnixListener {
    /// Creates a socket file at `path` and listens on it.
    ///
    /// # Errors
    /// Returns the system's error: [`AddrInUse`](io::ErrorKind::AddrInUse) if there is such a file.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        Polled::adopt(net::UnixListener::bind(path)?).map(UnixListener)
    }

    /// Listens on `addr`, which may be an abstract name.
    ///
    /// # Errors
    /// Returns the system's error: [`AddrInUse`](io::ErrorKind::AddrInUse) if the name is in use.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixListener> {
        Polled::adopt(net::UnixListener::bind_addr(addr)?).map(UnixListener)
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// Returns the system's error. Running out of descriptors is one that passes.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, peer) = self.0.run(Interest::Read, net::UnixListener::accept)?;
        Ok((UnixStream(Polled::adopt(stream)?), peer))
    }

    /// Waits for a connection: [`UnixListener::accept`] as a future. It is cancel-safe: a connection is accepted in the
    /// poll that returns it. Any number of tasks may wait; each connection wakes one.
    ///
    /// # Errors
    /// Returns the system's error. Running out of descriptors is one that passes.
    pub async fn accept_async(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, peer) = self.0.run_async(Interest::Read, net::UnixListener::accept).await?;
        Ok((UnixStream(Polled::adopt(stream)?), peer))
    }

    /// Accepts a connection; if there is none, the waker of `cx` is called once there may be. The waker of the latest
    /// call counts.
    ///
    /// # Errors
    /// Returns the system's error. Running out of descriptors is one that passes.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        let (stream, peer) = ready!(self.0.poll_io(Interest::Read, cx, net::UnixListener::accept))?;
        Poll::Ready(Polled::adopt(stream).map(|stream| (UnixStream(stream), peer)))
    }

    /// Returns an endless iterator over the connections that come, like a loop that calls [`UnixListener::accept`].
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }
}

impl_socket!(UnixListener, net::UnixListener);
forward! { UnixListener:
    /// Returns the address on which it listens.
    local_addr() -> SocketAddr;
}

/// The connections of a listener; see [`UnixListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a>(&'a UnixListener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<UnixStream>;

    fn next(&mut self) -> Option<io::Result<UnixStream>> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}

impl UnixStream {
    /// Connects to the socket at `path`; waits while its backlog is full.
    ///
    /// # Errors
    /// Returns the system's error; [`TimedOut`](io::ErrorKind::TimedOut) if a [`crate::timeout`] cut it off.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        UnixStream::connect_addr(&SocketAddr::from_pathname(path)?)
    }

    /// Connects to `addr`, which may be an abstract name; waits while its backlog is full.
    ///
    /// # Errors
    /// Returns the system's error; [`TimedOut`](io::ErrorKind::TimedOut) if a [`crate::timeout`] cut it off.
    pub fn connect_addr(addr: &SocketAddr) -> io::Result<UnixStream> {
        let addr = to_system(addr)?;
        let socket = socket()?;
        let connect = || Ok(rustix::net::connect(&socket, &addr)?);
        retry(None, io::ErrorKind::TimedOut, connect)?;
        Polled::new(net::UnixStream::from(socket)).map(UnixStream)
    }

    /// Connects to the socket at `path`; a future that waits while its backlog is full. It is cancel-safe: if it is
    /// dropped, the connection is not made.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn connect_async(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        let addr = SocketAddr::from_pathname(path)?;
        UnixStream::connect_addr_async(&addr).await
    }

    /// Connects to `addr`, which may be an abstract name; see [`UnixStream::connect_async`].
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn connect_addr_async(addr: &SocketAddr) -> io::Result<UnixStream> {
        let addr = to_system(addr)?;
        let socket = socket()?;
        retry_async(|| Ok(rustix::net::connect(&socket, &addr)?)).await?;
        Polled::new(net::UnixStream::from(socket)).map(UnixStream)
    }

    /// Creates two sockets that are connected with each other.
    ///
    /// # Errors
    /// Fails if the process has no descriptors left.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (a, b) = net::UnixStream::pair()?;
        Ok((UnixStream(Polled::adopt(a)?), UnixStream(Polled::adopt(b)?)))
    }

    /// Waits for data and copies it to `buf`, but leaves it to be read. Returns how many bytes it copied: zero at
    /// the end.
    ///
    /// # Errors
    /// Returns the system's error, or that of a time limit.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run(Interest::Read, |io| super::peek(io, buf))
    }

    /// Waits for data and copies it to `buf`, but leaves it to be read: [`UnixStream::peek`] as a future. It is
    /// cancel-safe.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn peek_async(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run_async(Interest::Read, |io| super::peek(io, buf)).await
    }

    /// Ends the direction of writing, unless the connection is gone already.
    pub(in crate::net) fn close_write(&self) -> io::Result<()> {
        unless_gone(self.shutdown(Shutdown::Write))
    }

    /// Returns who is at the other end.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn peer_cred(&self) -> io::Result<UCred> {
        let (pid, uid, gid) = heddle_sys::socket::peer_credentials(self.0.io().as_fd())?;
        Ok(UCred { uid, gid, pid: (pid != 0).then_some(pid) })
    }

    /// For waits that are no reads.
    pub(crate) fn polled(&self) -> &Polled<net::UnixStream> {
        &self.0
    }
}

impl_socket!(UnixStream, net::UnixStream);
impl_timeouts!(UnixStream);
impl_read!(UnixStream);
impl_write!(UnixStream);
impl_async_read!(UnixStream);
impl_async_write!(UnixStream: UnixStream::close_write);
impl_descriptor!(UnixListener: net::UnixListener, UnixStream: net::UnixStream);
forward! { UnixStream:
    /// Returns the address of the other end.
    peer_addr() -> SocketAddr;
    /// Returns the address of this end.
    local_addr() -> SocketAddr;
    /// Shuts down one direction or both. Waiting reads see the end.
    shutdown(how: Shutdown) -> ();
}

/// Creates a stream socket that is not blocking.
fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Converts an address of the standard library to one for system calls.
fn to_system(addr: &SocketAddr) -> io::Result<SocketAddrUnix> {
    Ok(match (addr.as_pathname(), addr.as_abstract_name()) {
        (Some(path), _) => SocketAddrUnix::new(path)?,
        (_, Some(name)) => SocketAddrUnix::new_abstract_name(name)?,
        _ => SocketAddrUnix::new_unnamed(),
    })
}
