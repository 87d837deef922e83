//! Connections.

use super::block::{self, Way};
use super::kind::{self, Kind};
use super::{EAGAIN, points, ready};
use crate::sys::syscall;
use libc::{sockaddr, socklen_t};
use std::ffi::c_int;

/// There is no form that does not block: looks first. Of the tasks that accept from one socket, one at a time does, so
/// none takes what another has seen.
fn accept_one(fd: c_int, from: *mut sockaddr, size: *mut socklen_t, flags: c_int) -> isize {
    // SAFETY: the caller's memory.
    let call = || unsafe { syscall!(libc::SYS_accept4, fd, from, size, flags) };
    let new = block::call(fd, Way::In, |now| match now {
        true => match ready::alone(fd, || kind::if_ready(fd, ready::IN, call)) {
            // An error that the kernel returns at once.
            Some(EAGAIN) if !is_listening(fd) => call(),
            result => result.unwrap_or(EAGAIN),
        },
        false => call(),
    });
    if new >= 0 {
        // It has the options of the listening socket.
        let has_low_water = kind::of(fd).has_low_water();
        kind::set(new as c_int, if has_low_water { Kind::UNKNOWN } else { Kind::SOCKET });
    }
    new
}

fn is_listening(fd: c_int) -> bool {
    kind::option(fd, libc::SO_ACCEPTCONN) == Some(1)
}

/// Connects in the kernel: a connection takes a round trip at least, unless the peer is here.
fn connect_one(fd: c_int, to: *const sockaddr, size: socklen_t) -> isize {
    // SAFETY: the caller's memory.
    let call = || unsafe { syscall!(libc::SYS_connect, fd, to, size) };
    if kind::known(fd).is_nonblocking() || kind::ask_nonblocking(fd) {
        return call();
    }
    // A repeated call waits for the connection that the first has begun.
    block::in_kernel(call)
}

points! {
    accept(fd: c_int, from: *mut sockaddr, size: *mut socklen_t) -> c_int {
        accept_one(fd, from, size, 0)
    }
    accept4(fd: c_int, from: *mut sockaddr, size: *mut socklen_t, flags: c_int) -> c_int {
        accept_one(fd, from, size, flags)
    }
    connect(fd: c_int, to: *const sockaddr, size: socklen_t) -> c_int {
        connect_one(fd, to, size)
    }
    __connect(fd: c_int, to: *const sockaddr, size: socklen_t) -> c_int {
        connect_one(fd, to, size)
    }
}
