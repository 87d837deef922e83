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
    let socket = open()?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    bind(&socket, interface, ALL)?;
    Ok(socket)
}

/// Opens a non-blocking socket that sends frames by the interface with this index in the calling thread's network
/// namespace, and receives none. A header of virtio (`struct virtio_net_hdr`, 10 bytes) is before each frame, and says
/// how the kernel is to cut it. Up to `waiting` bytes may wait to be sent; without CAP_NET_ADMIN the system's limit
/// (`net.core.wmem_max`) may be lower.
///
/// # Errors
/// `EPERM` without CAP_NET_RAW, `ENODEV` if there is no such interface.
pub fn sender(interface: u32, waiting: i32) -> io::Result<OwnedFd> {
    let socket = open()?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    if set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, waiting).is_err() {
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, waiting)?;
    }
    bind(&socket, interface, 0)?;
    Ok(socket)
}

/// Opens a socket without a protocol: it receives nothing before it is bound to one.
fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers only.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the kernel has just created this descriptor for us, and nothing else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set(socket: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let (fd, size) = (socket.as_raw_fd(), size_of_val(&value) as libc::socklen_t);
    // SAFETY: `value` outlives the call and has the stated size.
    check(unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), size) })?;
    Ok(())
}

fn bind(socket: &OwnedFd, interface: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = interface.cast_signed();
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` outlives the call and has the stated size.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
    Ok(())
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
