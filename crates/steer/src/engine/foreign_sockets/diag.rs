//! Asks the kernel who has a port (`NETLINK_SOCK_DIAG`, as `ss` does). The tables in /proc are unsuitable:
//! each read of the UDP table starts over at the first socket, so half a million sockets of another user take
//! a minute, and a copy of each.
//!
//! - **I1** The kernel reports only sockets at the ports.
//! - **I2** The search ends, however many sockets a user has at the ports.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recvfrom, send, socket_with,
};

use crate::hook::xdp::Protocol;

/// From linux/netlink.h: message types, and the flags of a dump request.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const ALL: u16 = 0x301;
/// From linux/sock_diag.h and linux/inet_diag.h: the type of requests and answers, and the filter attribute.
const BY_FAMILY: u16 = 20;
const FILTER: u16 = 1;
/// Sizes in bytes of `struct nlmsghdr`, `struct inet_diag_req_v2` and `struct inet_diag_sockid`.
const HEAD: usize = 16;
const ASKED: usize = 56;
const NAMES: usize = 48;
/// The states of a TCP socket that has a peer or listens, except TIME_WAIT. They include both states of UDP.
const STATES: u32 = 0xffe & !(1 << 6);
/// Twice the size of the kernel's largest answer.
const PART: usize = 64 << 10;

/// A socket as the kernel reports it.
#[derive(Clone, Copy, Debug)]
pub struct Socket {
    pub protocol: Protocol,
    pub local: SocketAddr,
    pub uid: u32,
    /// 0 if no process has it.
    pub inode: u32,
}

/// Finds a socket of `protocol` at one of `ports`, in this thread's network namespace, that satisfies
/// `wanted`. The kernel walks its table once, and once more for every 200 or so sockets that have the ports.
///
/// # Errors
/// `TimedOut` if there is no result by `end`; the system's.
pub fn find(
    protocol: Protocol,
    ports: &BTreeSet<u16>,
    end: Instant,
    wanted: impl Fn(&Socket) -> bool,
) -> io::Result<Option<Socket>> {
    let mut buffer = vec![0; PART];
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        let kernel = ask(family, protocol, ports)?;
        let mut is_more = true;
        while is_more {
            if Instant::now() >= end {
                let text = "too many sockets on this machine to tell whose the port is";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            let (found, more) = read(hear(&kernel, &mut buffer)?, protocol, &wanted)?;
            if found.is_some() {
                return Ok(found);
            }
            is_more = more;
        }
    }
    Ok(None)
}

fn ask(family: AddressFamily, protocol: Protocol, ports: &BTreeSet<u16>) -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let kernel = socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::SOCK_DIAG))?;
    send(&kernel, &request(family, protocol, ports), SendFlags::empty())?;
    Ok(kernel)
}

fn request(family: AddressFamily, protocol: Protocol, ports: &BTreeSet<u16>) -> Vec<u8> {
    let filter = filter(ports);
    let size = HEAD + ASKED + 4 + filter.len();
    let mut bytes = Vec::with_capacity(size);
    bytes.extend((size as u32).to_ne_bytes());
    bytes.extend([BY_FAMILY, ALL].map(u16::to_ne_bytes).as_flattened());
    // Sequence number and sender: filled in by the kernel.
    bytes.extend([0; 8]);
    bytes.extend([family.as_raw() as u8, protocol as u8, 0, 0]);
    bytes.extend(STATES.to_ne_bytes());
    bytes.extend([0; NAMES]);
    bytes.extend([(4 + filter.len()) as u16, FILTER].map(u16::to_ne_bytes).as_flattened());
    bytes.extend(filter);
    bytes
}

/// Returns a filter for the kernel: whether a socket's own port is among `ports`. Each step gives the number
/// of bytes to advance if it is true, and if not; ending exactly at the end accepts.
fn filter(ports: &BTreeSet<u16>) -> Vec<u8> {
    const JUMP: u8 = 1;
    const PORT_IS: u8 = 11;
    let step = |code: u8, yes: u8, no: usize| {
        let [first, second] = (no as u16).to_ne_bytes();
        [code, yes, first, second]
    };
    let mut bytes = Vec::new();
    for (more, port) in (0..ports.len()).rev().zip(ports) {
        // If not, jump to the next port; after the last, beyond the end.
        bytes.extend(step(PORT_IS, 8, 12));
        bytes.extend(step(0, 0, (*port).into()));
        if more > 0 {
            bytes.extend(step(JUMP, 4, more * 12));
        }
    }
    bytes
}

/// Receives the next part of the answer. The kernel produces it during the call, so this never waits.
fn hear<'a>(kernel: &OwnedFd, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let (_, size, from) = recvfrom(kernel, &mut *buffer, RecvFlags::DONTWAIT)?;
    let of_kernel = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
    if of_kernel.is_none_or(|from| from.pid() != 0) {
        return Err(io::Error::other("an answer that is not the kernel's"));
    }
    buffer.get(..size).ok_or_else(cut)
}

fn cut() -> io::Error {
    io::Error::other("the kernel's list of sockets is cut off")
}

/// Returns the first socket in a part of the answer that satisfies `wanted`, and whether more parts follow.
fn read(
    mut part: &[u8],
    protocol: Protocol,
    wanted: impl Fn(&Socket) -> bool,
) -> io::Result<(Option<Socket>, bool)> {
    while !part.is_empty() {
        let size = number(part, 0)? as usize;
        let body = part.get(HEAD..size).ok_or_else(cut)?;
        match u16::from_ne_bytes(bytes(part, 4)?) {
            BY_FAMILY => {
                let socket = socket(body, protocol)?;
                if wanted(&socket) {
                    return Ok((Some(socket), true));
                }
            }
            DONE | ERROR => return end(body).map(|()| (None, false)),
            _ => {}
        }
        part = part.get(size.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok((None, true))
}

/// Parses the final message: 0, or a negative error number.
fn end(body: &[u8]) -> io::Result<()> {
    match number(body, 0)?.cast_signed() {
        0 => Ok(()),
        error if error == -rustix::io::Errno::NOENT.raw_os_error() => {
            let text = "this kernel lists no sockets (modules inet_diag, tcp_diag, udp_diag)";
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Parses `struct inet_diag_msg`.
fn socket(body: &[u8], protocol: Protocol) -> io::Result<Socket> {
    let family = AddressFamily::from_raw(u16::from(*body.first().ok_or_else(cut)?));
    let port = u16::from_be_bytes(bytes(body, 4)?);
    let ip: IpAddr = match family {
        AddressFamily::INET => bytes::<4>(body, 8)?.into(),
        _ => bytes::<16>(body, 8)?.into(),
    };
    let after = 4 + NAMES;
    let (uid, inode) = (number(body, after + 12)?, number(body, after + 16)?);
    Ok(Socket { protocol, local: SocketAddr::new(ip, port), uid, inode })
}

fn number(of: &[u8], at: usize) -> io::Result<u32> {
    bytes(of, at).map(u32::from_ne_bytes)
}

fn bytes<const N: usize>(of: &[u8], at: usize) -> io::Result<[u8; N]> {
    of.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or_else(cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::time::Duration;

    fn long() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn sockets_are_found_by_port_with_their_users() {
        let (tcp, udp) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::1]:0").unwrap());
        let me = rustix::process::geteuid().as_raw();
        let has = |protocol, local: SocketAddr| {
            let wanted = |one: &Socket| (one.local, one.uid) == (local, me) && one.inode != 0;
            find(protocol, &[local.port()].into(), long(), wanted).unwrap().is_some()
        };
        assert!(has(Protocol::Tcp, tcp.local_addr().unwrap()));
        assert!(has(Protocol::Udp, udp.local_addr().unwrap()));
    }

    #[test]
    fn the_kernel_reports_exactly_the_requested_ports() {
        let sockets = [(); 64].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let all = sockets.each_ref().map(|socket| socket.local_addr().unwrap().port());
        for some in [&all[..1], &all[..2], &all[..7], &all] {
            let ports: BTreeSet<u16> = some.iter().copied().collect();
            let seen = std::cell::RefCell::new(BTreeSet::new());
            let look = |socket: &Socket| {
                seen.borrow_mut().insert(socket.local.port());
                false
            };
            assert!(find(Protocol::Udp, &ports, long(), look).unwrap().is_none());
            assert_eq!(seen.into_inner(), ports);
        }
    }

    #[test]
    fn a_late_answer_is_an_error() {
        let error = find(Protocol::Tcp, &[1].into(), Instant::now(), |_| true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let error = crate::request::Error::system("sockets", &error);
        assert_eq!(error.kind, crate::request::ErrorKind::Busy);
    }

    #[test]
    fn malformed_answers_are_refused() {
        let read = |bytes: &[u8]| read(bytes, Protocol::Tcp, |_| true);
        for cut in [&[1][..], &[0; 16], &[255; 40], &[16, 0, 0, 0, 20, 0, 0, 0]] {
            assert!(read(cut).is_err(), "{cut:?}");
        }
        let last = |error: i32| {
            let head = [20, 3, 0, 0].map(u32::to_ne_bytes);
            read(&[head.as_flattened(), &error.to_ne_bytes()].concat())
        };
        assert!(matches!(last(0), Ok((None, false))));
        assert_eq!(last(-2).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(last(-1).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
