//! Sockets for whole frames of an interface (packet(7)).

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// All protocols, in the network's byte order.
const ALL: u16 = (libc::ETH_P_ALL as u16).to_be();

/// Opens a non-blocking socket that receives each frame that arrives at the interface with this index in the calling
/// thread's network namespace, and sends frames by it. Frames that leave the interface are not received.
///
/// # Errors
/// `EPERM` without CAP_NET_RAW, `ENODEV` if there is no such interface; `ENOPROTOOPT` before kernel 4.20.
pub fn socket(interface: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // Without a protocol nothing is received before the socket is bound.
    // SAFETY: takes numbers only.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the kernel has just created this descriptor for us, and nothing else knows its number.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let one: i32 = 1;
    let size = size_of_val(&one) as libc::socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING);
    // SAFETY: `one` outlives the call and has the stated size.
    check(unsafe { libc::setsockopt(fd, level, option, (&raw const one).cast(), size) })?;
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ALL;
    address.sll_ifindex = interface.cast_signed();
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` outlives the call and has the stated size.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
    Ok(socket)
}

/// Returns how many frames a socket lost since the last call because its buffer was full.
///
/// # Errors
/// It is not a socket of [`socket`].
pub fn take_lost(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut size = size_of_val(&statistics) as libc::socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
    let fd = socket.as_raw_fd();
    // SAFETY: the kernel writes at most `size` bytes to `statistics`, which are numbers.
    check(unsafe {
        libc::getsockopt(fd, level, option, (&raw mut statistics).cast(), &raw mut size)
    })?;
    Ok(statistics.tp_drops)
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
