//! What the kernel knows of a socket and the usual crates do not ask.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// The network namespace that a socket belongs to.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` in that namespace; `ENOTTY` if it is no socket.
pub fn namespace(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// `SIOCGSKNS` of linux/sockios.h.
    const OF_SOCKET: libc::c_ulong = 0x894c;
    // SAFETY: takes a descriptor only, and returns one.
    let fd = unsafe { libc::ioctl(socket.as_raw_fd(), OF_SOCKET) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
