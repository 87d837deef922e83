//! The sockets that server threads receive on.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};

use super::dilation::EXECUTORS;

/// The sockets that threads receive on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// One per thread, in one reuseport group.
    Own,
    /// One for all: late binding, first come first served.
    Shared,
    /// One per class, short requests first; this many threads at most serve the last class at once.
    Classes(u32),
}

/// Binds sockets with the kernel's default receive buffers.
///
/// # Errors
/// System errors.
pub fn bind(sockets: Sockets) -> io::Result<Vec<UdpSocket>> {
    let count = match sockets {
        Sockets::Own => EXECUTORS,
        Sockets::Shared => 1,
        Sockets::Classes(_) => 2,
    };
    bind_group((Ipv4Addr::LOCALHOST, 0).into(), count)
}

/// Binds `count` sockets of one reuseport group to `address`, whose port may be 0, in the calling thread's network
/// namespace.
///
/// # Errors
/// System errors.
pub fn bind_group(address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
    let mut bound: Vec<UdpSocket> = Vec::new();
    for _ in 0..count {
        let at = bound.first().map_or(Ok(address), UdpSocket::local_addr)?;
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None)?;
        socket.set_reuse_port(true)?;
        socket.bind(&at.into())?;
        bound.push(socket.into());
    }
    Ok(bound)
}
