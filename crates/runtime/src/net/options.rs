//! What all kinds of sockets have in common, written once for each kind of function.

use crate::io::{Polled, Readiness};
use crate::poller::Interest;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_timeout};
use std::io;
use std::os::fd::AsFd;

/// What is under a handle: a socket of the standard library, or one that lanes may serve as well.
pub(super) trait SocketIo: Readiness + From<Self::Std> {
    /// The standard library's socket.
    type Std: AsFd;

    /// Returns the standard library's socket.
    ///
    /// # Errors
    /// If the kernel has none.
    fn try_into_std(self) -> io::Result<Self::Std>;

    /// Returns what another handle to the socket gets.
    ///
    /// # Errors
    /// The system's, if the process has no descriptors left.
    fn duplicate(&self) -> io::Result<Self>;

    /// Lets `clone`, which got the duplicate and has been registered, take part in what is not the kernel's.
    fn admit(&self, clone: Polled<Self>) -> Polled<Self> {
        clone
    }
}

/// Takes over a socket with its time limits and makes it non-blocking.
pub(super) fn adopt<S: SocketIo>(socket: S::Std) -> io::Result<Polled<S>> {
    let read = socket_timeout(&socket, Timeout::Recv)?;
    let write = socket_timeout(&socket, Timeout::Send)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    let polled = Polled::new(S::from(socket))?;
    polled.set_timeout(Interest::Read, read)?;
    polled.set_timeout(Interest::Write, write)?;
    Ok(polled)
}

/// Deregisters a socket and gives it the mode and the time limits of its handle.
pub(super) fn release<S: SocketIo>(socket: Polled<S>) -> io::Result<S::Std> {
    let (read, write) = (socket.timeout(Interest::Read), socket.timeout(Interest::Write));
    let nonblocking = socket.is_nonblocking();
    let io = socket.into_inner().try_into_std()?;
    set_socket_timeout(&io, Timeout::Recv, read)?;
    set_socket_timeout(&io, Timeout::Send, write)?;
    rustix::io::ioctl_fionbio(&io, nonblocking)?;
    Ok(io)
}

/// Creation from and conversion to the standard library's type, duplication, mode and pending error.
macro_rules! impl_socket {
    ($socket:ident, $std:ty) => {
        impl $socket {
            /// Takes over a socket of the standard library, with its time limits. The descriptor becomes
            /// non-blocking, and so do its duplicates.
            ///
            /// # Errors
            /// Fails if the descriptor cannot be registered.
            pub fn from_std(socket: $std) -> std::io::Result<$socket> {
                $crate::net::options::adopt(socket).map($socket)
            }

            /// Returns the standard library's socket, with the time limits of this handle. It is in blocking mode,
            /// unless [`Self::set_nonblocking`] says otherwise. The mode is shared with duplicates (`try_clone`):
            /// those that stay here would block their workers, so convert the last one.
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn into_std(self) -> std::io::Result<$std> {
                $crate::net::options::release(self.0)
            }

            /// Creates a second handle to the same socket. It starts with the time limits and mode of this one, and
            /// from then on each handle has its own.
            ///
            /// # Errors
            /// Fails if the process has no descriptors left.
            pub fn try_clone(&self) -> std::io::Result<$socket> {
                use $crate::net::options::SocketIo as _;
                let clone = $crate::io::Polled::new(self.0.io().duplicate()?)?;
                Ok($socket(self.0.io().admit(clone.with_settings_of(&self.0))))
            }

            /// Sets whether operations of this handle fail with [`WouldBlock`](std::io::ErrorKind::WouldBlock) at
            /// once instead of waiting. The descriptor itself is always non-blocking; other handles to the socket
            /// are not affected.
            ///
            /// # Errors
            /// Never fails; the signature is std's.
            pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                self.0.set_nonblocking(nonblocking);
                Ok(())
            }

            /// Takes the pending error of the socket (`SO_ERROR`).
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.0.io().take_error()
            }
        }
    };
}

/// The time limits of a handle.
macro_rules! impl_timeouts {
    ($socket:ident) => {
        impl $socket {
            /// Limits how long a read of this handle waits; `None` means no limit. A read that takes longer fails with
            /// [`WouldBlock`](std::io::ErrorKind::WouldBlock), as in std.
            ///
            /// # Errors
            /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a timeout of zero.
            pub fn set_read_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.0.set_timeout($crate::poller::Interest::Read, timeout)
            }

            /// Limits how long a write of this handle waits; `None` means no limit. A write that takes longer fails
            /// with [`WouldBlock`](std::io::ErrorKind::WouldBlock), as in std.
            ///
            /// # Errors
            /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a timeout of zero.
            pub fn set_write_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.0.set_timeout($crate::poller::Interest::Write, timeout)
            }

            /// Returns the read timeout of this handle.
            ///
            /// # Errors
            /// Never fails; the signature is std's.
            pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.0.timeout($crate::poller::Interest::Read))
            }

            /// Returns the write timeout of this handle.
            ///
            /// # Errors
            /// Never fails; the signature is std's.
            pub fn write_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.0.timeout($crate::poller::Interest::Write))
            }
        }
    };
}

/// Functions that ask or set something at once, passed on to the standard library's socket.
macro_rules! forward {
    ($socket:ident: $($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        impl $socket {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Returns the system's error.
                pub fn $name(&self, $($arg: $type),*) -> std::io::Result<$result> {
                    self.0.io().$name($($arg),*)
                }
            )*
        }
    };
}

macro_rules! impl_socket_io {
    ($($std:ty),*) => {$(
        impl $crate::net::options::SocketIo for $std {
            type Std = $std;

            fn try_into_std(self) -> std::io::Result<$std> {
                Ok(self)
            }

            fn duplicate(&self) -> std::io::Result<$std> {
                self.try_clone()
            }
        }
    )*};
}

impl_socket_io!(
    std::os::unix::net::UnixDatagram,
    std::os::unix::net::UnixListener,
    std::os::unix::net::UnixStream
);

pub(super) use {forward, impl_socket, impl_timeouts};
