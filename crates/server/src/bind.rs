//! Binds the sockets, before anything else starts.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use super::{Error, Options};

/// Backlog of connections not yet accepted.
const BACKLOG: i32 = 1024;
/// Room for bursts of datagrams; the kernel grants at most `net.core.rmem_max`.
const RECEIVE_BUFFER: usize = 8 << 20;

/// The server's sockets, blocking.
pub(super) struct Sockets {
    pub(super) tcp: Option<(TcpListener, SocketAddr)>,
    pub(super) udp: Option<(UdpSocket, SocketAddr)>,
}

pub(super) fn bind(options: &Options) -> Result<Sockets, Error> {
    if options.tcp.is_none() && options.udp.is_none() {
        return Err(Error::NoAddress);
    }
    let tcp = options.tcp.map(|addr| listen(addr).map_err(|e| refused("TCP", addr, e)));
    let udp = options.udp.map(|addr| receive(addr).map_err(|e| refused("UDP", addr, e)));
    Ok(Sockets { tcp: tcp.transpose()?, udp: udp.transpose()? })
}

fn listen(addr: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait until the kernel forgets the last run's connections.
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from(socket);
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

fn receive(addr: SocketAddr) -> io::Result<(UdpSocket, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(&addr.into())?;
    let socket = UdpSocket::from(socket);
    let addr = socket.local_addr()?;
    Ok((socket, addr))
}

fn refused(protocol: &'static str, addr: SocketAddr, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::AddrInUse => Error::PortInUse { protocol, addr },
        _ => Error::Bind { protocol, addr, source },
    }
}
