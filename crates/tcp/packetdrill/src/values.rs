//! Values that Linux's calls have: errors, options, events.

use crate::host::{Host, Socket};
use heddle_tcp::{Error, State};
use libc::c_int;

/// The number of an error.
pub fn errno(error: Error) -> c_int {
    match error {
        Error::WouldBlock => libc::EAGAIN,
        Error::Stale => libc::EBADF,
        Error::NotConnected => libc::ENOTCONN,
        Error::WriteShutdown => libc::EPIPE,
        Error::Reset => libc::ECONNRESET,
        Error::Refused => libc::ECONNREFUSED,
        Error::TimedOut => libc::ETIMEDOUT,
        Error::Unreachable => libc::EHOSTUNREACH,
        _ => libc::ECONNABORTED,
    }
}

/// The fields of Linux's `tcp_info` that are known: by offset.
fn tcp_info(host: &Host, fd: c_int) -> Option<[u8; 104]> {
    let info = host.stack.info(host.connection(fd)?).ok()?;
    let mut bytes = [0; 104];
    let state = match info.state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    };
    (bytes[0], bytes[4]) = (state, info.backoff);
    let mss = u32::from(info.mss).max(1);
    let words = [
        (8, (info.rto.0 / 1000) as u32),
        (16, mss),
        (24, info.unacked as u32),
        (68, (info.srtt.0 / 1000) as u32),
        (72, (info.rttvar.0 / 1000) as u32),
        (76, info.ssthresh / mss),
        (80, info.cwnd / mss),
        (100, info.retransmits),
    ];
    words.iter().for_each(|&(at, word)| bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes()));
    Some(bytes)
}

/// The value of a socket's option; `None` if it is not known.
pub fn option(host: &mut Host, fd: c_int, level: c_int, name: c_int) -> Option<Vec<u8>> {
    let word = |value: c_int| Some(value.to_ne_bytes().to_vec());
    let id = host.connection(fd);
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_INFO) => Some(tcp_info(host, fd)?.to_vec()),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => word(c_int::from(host.stack.info(id?).ok()?.mss)),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => word(c_int::from(host.stack.nodelay(id?).ok()?)),
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            word(host.stack.take_error(id?).ok()?.map_or(0, errno))
        }
        _ => None,
    }
}

/// What `poll` finds.
pub fn events(host: &Host, fd: c_int) -> i16 {
    match host.socket(fd) {
        Some(Socket::Listener(id)) => {
            let is_ready =
                host.stack.listeners().any(|listener| listener.id == id && listener.ready > 0);
            if is_ready { libc::POLLIN } else { 0 }
        }
        Some(Socket::Connection(id)) => {
            let is_up = host.stack.is_connected(id).unwrap_or(false);
            let read = if is_up && host.stack.is_readable(id) { libc::POLLIN } else { 0 };
            let write = if host.stack.writable(id) > 0 { libc::POLLOUT } else { 0 };
            read | write
        }
        _ => 0,
    }
}
