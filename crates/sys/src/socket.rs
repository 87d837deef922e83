//! What the kernel knows of a socket and the usual crates do not ask.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

/// The CPU that processed the socket's last packet (`SO_INCOMING_CPU`). None if it is no socket, or had none. About 0.2 us.
pub fn incoming_cpu(fd: RawFd) -> Option<u32> {
    let (mut cpu, mut size) = (-1i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the value has the size that is said; the kernel checks the descriptor.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_INCOMING_CPU,
            (&raw mut cpu).cast(),
            &mut size,
        )
    };
    if result == 0 { u32::try_from(cpu).ok() } else { None }
}

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
