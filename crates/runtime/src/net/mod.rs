//! Sockets whose waits leave the worker to other tasks. The interface is `std::net`'s.
//!
//! # Time limits
//! An operation that takes longer than [`TcpStream::set_read_timeout`] and its like allow fails with
//! [`WouldBlock`](io::ErrorKind::WouldBlock), as with `std::net` on Linux. One that is cut off by [`crate::timeout`] or
//! [`TcpStream::connect_timeout`] fails with [`TimedOut`](io::ErrorKind::TimedOut). In either case what can be done at once is
//! done, however late.

mod addr;
mod resolve;
mod tcp;
mod udp;

pub use addr::ToSocketAddrs;
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;

use crate::ambient;
use crate::engine::WeakRuntime;
use crate::now;
use crate::poller::{Interest, Registration};
use crate::time::within;
use heddle_core::Ns;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A socket of the standard library, non-blocking, registered with a runtime.
struct Socket<S: AsFd> {
    io: S,
    registration: Registration,
    runtime: WeakRuntime,
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
}

impl<S: AsFd> Socket<S> {
    /// Registers `io`, which is non-blocking.
    fn new(io: S) -> io::Result<Self> {
        let (registration, runtime) = ambient::register(io.as_fd())?;
        Ok(Socket {
            io,
            registration,
            runtime,
            read_timeout: AtomicU64::new(0),
            write_timeout: AtomicU64::new(0),
        })
    }

    fn timeout(&self, interest: Interest) -> &AtomicU64 {
        match interest {
            Interest::Read => &self.read_timeout,
            Interest::Write => &self.write_timeout,
        }
    }

    fn run<R>(&self, interest: Interest, mut op: impl FnMut(&S) -> io::Result<R>) -> io::Result<R> {
        let timeout = Ns(self.timeout(interest).load(Ordering::Relaxed));
        let own = (timeout != Ns::ZERO).then(|| now() + timeout);
        within(own, io::ErrorKind::WouldBlock, |deadline| {
            self.registration.run(interest, deadline, || op(&self.io))
        })
    }

    fn set_timeout(&self, interest: Interest, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map_or(Ok(Ns::ZERO), nonzero)?;
        self.timeout(interest).store(timeout.0, Ordering::Relaxed);
        Ok(())
    }
}

/// A time limit, which is not zero.
fn nonzero(timeout: Duration) -> io::Result<Ns> {
    let refused = "a timeout of zero; `None` means no timeout";
    if timeout.is_zero() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, refused));
    }
    Ok(timeout.into())
}

impl<S: AsFd> Drop for Socket<S> {
    fn drop(&mut self) {
        self.runtime.remove_source(self.io.as_fd());
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
