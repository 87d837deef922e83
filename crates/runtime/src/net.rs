//! Sockets whose waits leave the worker to other tasks. The interface is `std::net`'s.

use crate::liveness::Liveness;
use crate::poller::{Interest, Source};
use crate::time::limit;
use crate::{now, runtime};
use heddle_core::Ns;
use std::io::{self, IoSlice, Read, Write};
use std::net::{self, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A socket of the standard library, non-blocking, registered with a runtime.
struct Socket<S: AsFd> {
    io: S,
    source: Arc<Source>,
    runtime: &'static Liveness,
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
}

impl<S: AsFd> Socket<S> {
    /// Registers `io`, which is non-blocking.
    fn new(io: S) -> io::Result<Self> {
        let (source, runtime) = runtime::register(io.as_fd())?;
        Ok(Socket {
            io,
            source,
            runtime,
            read_timeout: AtomicU64::new(0),
            write_timeout: AtomicU64::new(0),
        })
    }

    fn run<R>(&self, interest: Interest, mut op: impl FnMut(&S) -> io::Result<R>) -> io::Result<R> {
        let timeout = match interest {
            Interest::Read => &self.read_timeout,
            Interest::Write => &self.write_timeout,
        };
        let own =
            Some(Ns(timeout.load(Ordering::Relaxed))).filter(|t| *t != Ns::ZERO).map(|t| now() + t);
        let deadline = own.into_iter().chain(limit()).min();
        self.source.run(interest, deadline, || op(&self.io))
    }

    fn set_timeout(&self, interest: Interest, timeout: Option<Duration>) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a timeout of zero; `None` means no timeout",
            ));
        }
        let target = match interest {
            Interest::Read => &self.read_timeout,
            Interest::Write => &self.write_timeout,
        };
        target.store(timeout.map_or(0, |t| Ns::from(t).0), Ordering::Relaxed);
        Ok(())
    }
}

impl<S: AsFd> Drop for Socket<S> {
    fn drop(&mut self) {
        self.runtime.with(|sched| sched.core().poller.remove(self.io.as_fd(), &self.source));
    }
}

/// A listening TCP socket.
pub struct TcpListener(Socket<net::TcpListener>);

/// A TCP connection.
pub struct TcpStream(Socket<net::TcpStream>);

/// A UDP socket. Any number of tasks may receive on it; each datagram wakes one.
pub struct UdpSocket(Socket<net::UdpSocket>);

impl TcpListener {
    /// Listens on `addr`.
    ///
    /// # Errors
    /// The system's: the port is taken, the address is not ours.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
        TcpListener::from_std(net::TcpListener::bind(addr)?)
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
    /// Connects to the first of `addr` that answers. Names are looked up by the C library: use [`crate::blocking()`] around
    /// that if it may take long.
    ///
    /// # Errors
    /// The last address's.
    pub fn connect(addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no address to connect to");
        for addr in addr.to_socket_addrs()? {
            match crate::blocking(|| net::TcpStream::connect(addr)) {
                Ok(stream) => return TcpStream::from_std(stream),
                Err(e) => last = e,
            }
        }
        Err(last)
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

    /// How long a read may wait; `None` for ever. Reads then fail with `TimedOut`.
    ///
    /// # Errors
    /// For a timeout of zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(Interest::Read, timeout)
    }

    /// How long a write may wait; `None` for ever.
    ///
    /// # Errors
    /// For a timeout of zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(Interest::Write, timeout)
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

impl UdpSocket {
    /// Binds to `addr`.
    ///
    /// # Errors
    /// The system's: the port is taken, the address is not ours.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        UdpSocket::from_std(net::UdpSocket::bind(addr)?)
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
        self.0.io.connect(to)
    }

    /// The address to which it is bound.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.io.local_addr()
    }

    /// How long a receive may wait; `None` for ever.
    ///
    /// # Errors
    /// For a timeout of zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(Interest::Read, timeout)
    }
}

macro_rules! descriptors {
    ($($socket:ty),*) => {$(
        impl AsFd for $socket {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.io.as_fd()
            }
        }

        impl AsRawFd for $socket {
            fn as_raw_fd(&self) -> RawFd {
                self.0.io.as_raw_fd()
            }
        }
    )*};
}

descriptors!(TcpListener, TcpStream, UdpSocket);
