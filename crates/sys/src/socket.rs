//! Socket information that the kernel has and the usual crates do not expose.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use crate::isolated::run_in_child;

/// Returns the CPU that processed the socket's last packet (`SO_INCOMING_CPU`); `None` if it is not a socket, or has
/// had no packet. About 0.2 us.
pub fn incoming_cpu(fd: RawFd) -> Option<u32> {
    // SAFETY: any bytes are a number.
    let cpu = unsafe { option(fd, libc::SO_INCOMING_CPU, -1_i32) };
    cpu.ok().and_then(|cpu| u32::try_from(cpu).ok())
}

/// Reads an option of a socket, of which `value` is the type; the kernel checks the descriptor.
///
/// # Errors
/// The system's.
///
/// # Safety
/// Any bytes are a valid `T`.
unsafe fn option<T>(fd: RawFd, name: i32, mut value: T) -> io::Result<T> {
    let mut size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value has the stated size, and the kernel may write any bytes to it, by the caller's promise.
    let result =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &mut size) };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Bytes of the longest supported address: `struct sockaddr_in6`.
const ADDRESS: usize = size_of::<libc::sockaddr_in6>();

/// Returns the address to which each of `sockets`, which other processes may keep locked, is bound; `None` if it is
/// neither IPv4 nor IPv6. Uses [`run_in_child`], for `user`.
///
/// # Errors
/// `ENOTSOCK` if one is not a socket; the errors of [`run_in_child`].
pub fn addresses(user: u32, sockets: &[BorrowedFd<'_>]) -> io::Result<Vec<Option<SocketAddr>>> {
    let mut addresses = vec![0; sockets.len() * ADDRESS];
    run_in_child(user, sockets, &mut addresses, |addresses| {
        let at = addresses.chunks_exact_mut(ADDRESS);
        sockets.iter().zip(at).try_for_each(|(socket, address)| put_address(*socket, address))
    })?;
    Ok(addresses.chunks_exact(ADDRESS).map(read_address).collect())
}

/// Makes only the system call: it runs in the child.
fn put_address(socket: BorrowedFd<'_>, address: &mut [u8]) -> io::Result<()> {
    let mut size = address.len() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `size` bytes, which are there.
    let result = unsafe {
        libc::getsockname(socket.as_raw_fd(), address.as_mut_ptr().cast(), &raw mut size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn read_address(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes[4..8].try_into().ok()?;
            Some(SocketAddr::new(ip.into(), port))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes[8..24].try_into().ok()?;
            let scope = u32::from_ne_bytes(bytes[24..28].try_into().ok()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
        }
        _ => None,
    }
}

/// Returns the network namespace that a socket belongs to.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` in that namespace; `ENOTTY` if it is not a socket.
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

/// Returns the process that connected a Unix socket, whichever process has its id now (`SO_PEERPIDFD`, kernel 6.5).
///
/// # Errors
/// `ENOPROTOOPT` from older kernels; `ESRCH` or `EINVAL` if it has ended and left nothing.
pub fn peer_process(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// Missing in the `libc` crate for this target.
    const SO_PEERPIDFD: i32 = 77;
    // SAFETY: any bytes are a number.
    let fd = unsafe { option(socket.as_raw_fd(), SO_PEERPIDFD, -1_i32) }?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns process, user and group of the peer of a connected Unix socket, as they were when it connected or, on the
/// accepting side, when it began to listen. The process is 0 if this process's namespace does not contain it.
///
/// # Errors
/// Returns the system's error.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<(u32, u32, u32)> {
    // Not by rustix, whose process ids are never zero.
    let none = libc::ucred { pid: 0, uid: 0, gid: 0 };
    // SAFETY: any bytes are three numbers.
    let peer = unsafe { option(socket.as_raw_fd(), libc::SO_PEERCRED, none) }?;
    Ok((peer.pid.cast_unsigned(), peer.uid, peer.gid))
}

/// Returns the addresses of all interfaces in this thread's network namespace.
///
/// # Errors
/// The system's.
pub fn local_addresses() -> io::Result<Vec<IpAddr>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the call writes a list to `first`, or fails.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut at = first;
    while !at.is_null() {
        // SAFETY: `at` is a member of the list, which is freed only below.
        let entry = unsafe { &*at };
        // SAFETY: the address is null or has the size that its family says.
        addresses.extend(unsafe { ip(entry.ifa_addr) });
        at = entry.ifa_next;
    }
    // SAFETY: the list is the one from above, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(addresses)
}

/// # Safety
/// `address` is null, or a socket address of the size that its family has.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: as promised; the structures of libc are read where they may lie unaligned.
    unsafe {
        match i32::from((&raw const (*address).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::from(v6.sin6_addr.s6_addr))
            }
            _ => None,
        }
    }
}

/// Raises the accept backlog to the system's limit (`net.core.somaxconn`).
///
/// # Errors
/// The system's.
pub fn raise_backlog(listener: &TcpListener) -> io::Result<()> {
    // SAFETY: takes numbers; the kernel cuts the second down to its limit.
    match unsafe { libc::listen(listener.as_raw_fd(), i32::MAX) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns a TCP socket that is bound to `addr` and does not listen yet, as [`TcpListener::bind`] makes it.
///
/// # Errors
/// The system's: the port is in use, or the address is not local.
pub fn bind_listener(addr: &SocketAddr) -> io::Result<TcpListener> {
    let socket = tcp_socket(addr, 0)?;
    let on = 1_i32;
    // SAFETY: the option is a number, which outlives the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    bind(&socket, addr)?;
    Ok(socket.into())
}

/// Returns a TCP socket that has a free port of `ip`, which no other program can take, and that address.
///
/// # Errors
/// The system's: no port is free, or the address is not local.
pub fn reserve_port(ip: IpAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = tcp_socket(&SocketAddr::new(ip, 0), 0)?;
    bind(&socket, &SocketAddr::new(ip, 0))?;
    let listener = TcpListener::from(socket);
    let local = listener.local_addr()?;
    Ok((listener.into(), local))
}

fn bind(socket: &OwnedFd, addr: &SocketAddr) -> io::Result<()> {
    let (storage, len) = to_system(addr);
    // SAFETY: `len` bytes of the storage hold the address.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const storage).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns a TCP socket of the family of `addr`, closed on exec, with these `flags`.
fn tcp_socket(addr: &SocketAddr, flags: i32) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags;
    // SAFETY: takes numbers, and returns a descriptor that is ours or an error.
    unsafe {
        match libc::socket(family, kind, 0) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Returns a non-blocking TCP socket that has started to connect to `addr`. Once it is writable,
/// [`TcpStream::take_error`] and [`TcpStream::peer_addr`] tell whether it succeeded.
///
/// # Errors
/// The system's: out of file descriptors, or the address is unreachable.
pub fn connect(addr: &SocketAddr) -> io::Result<TcpStream> {
    let socket = tcp_socket(addr, libc::SOCK_NONBLOCK)?;
    let (storage, len) = to_system(addr);
    // SAFETY: `len` bytes of the storage hold the address.
    if unsafe { libc::connect(socket.as_raw_fd(), (&raw const storage).cast(), len) } != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINPROGRESS) {
            return Err(error);
        }
    }
    Ok(socket.into())
}

/// Returns an address in the system's form, and its length.
fn to_system(addr: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all-zero is a valid storage.
    let mut storage: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
    let at = &raw mut storage;
    // SAFETY: the storage is large enough and aligned for each kind of address.
    let len = unsafe {
        match addr {
            SocketAddr::V4(v4) => {
                let at = &mut *at.cast::<libc::sockaddr_in>();
                at.sin_family = libc::AF_INET as libc::sa_family_t;
                at.sin_port = v4.port().to_be();
                at.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                size_of_val(at)
            }
            SocketAddr::V6(v6) => {
                let at = &mut *at.cast::<libc::sockaddr_in6>();
                at.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                at.sin6_port = v6.port().to_be();
                at.sin6_addr.s6_addr = v6.ip().octets();
                at.sin6_flowinfo = v6.flowinfo();
                at.sin6_scope_id = v6.scope_id();
                size_of_val(at)
            }
        }
    };
    (storage, len as libc::socklen_t)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn local_addresses_include_loopback() {
        let all = local_addresses().unwrap();
        assert!(all.contains(&IpAddr::from([127, 0, 0, 1])), "{all:?}");
    }

    #[test]
    fn a_connection_is_started_without_waiting() {
        for addr in ["127.0.0.1:0", "[::1]:0"] {
            // IPv6 may be off.
            let Ok(listener) = TcpListener::bind(addr) else { continue };
            let stream = connect(&listener.local_addr().unwrap()).unwrap();
            // Kept open: end of file would make the stream readable.
            let (_accepted, peer) = listener.accept().unwrap();
            assert!(crate::epoll::wait_for(stream.as_fd(), crate::epoll::WRITE, None));
            assert!(stream.take_error().unwrap().is_none());
            assert_eq!(stream.local_addr().unwrap(), peer);
            assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
            let nothing = io::Read::read(&mut &stream, &mut [0]).unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock, "it does not block");
        }
    }
}
