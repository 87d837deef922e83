//! Bytes and datagrams from and to sockets.

use super::block::{self, Way};
use super::stream::send_all;
use super::{kind, points};
use crate::real::real;
use crate::sys::syscall;
use libc::{sockaddr, socklen_t};
use std::ffi::{c_int, c_void};
use std::ptr;

/// Flags with which a receive never waits.
const NEVER_WAITS: c_int = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE;

/// What one receive fills.
#[derive(Clone, Copy)]
struct Room {
    at: *mut c_void,
    size: usize,
    from: *mut sockaddr,
    from_size: *mut socklen_t,
}

fn receive_once(fd: c_int, room: Room, flags: c_int) -> isize {
    let Room { at, size, from, from_size } = room;
    // SAFETY: the caller's memory.
    unsafe { syscall!(libc::SYS_recvfrom, fd, at, size, flags, from, from_size) }
}

#[inline]
fn receive(fd: c_int, room: Room, flags: c_int) -> isize {
    let kind = kind::of(fd);
    if flags & (NEVER_WAITS | libc::MSG_WAITALL) != 0 || kind.has_low_water() {
        return receive_as_asked(fd, room, flags);
    }
    block::call(fd, Way::In, |now| {
        receive_once(fd, room, if now { flags | libc::MSG_DONTWAIT } else { flags })
    })
}

#[cold]
fn receive_as_asked(fd: c_int, room: Room, flags: c_int) -> isize {
    if flags & NEVER_WAITS != 0 {
        return receive_once(fd, room, flags);
    }
    let is_partial = flags & libc::MSG_WAITALL == 0 || flags & libc::MSG_PEEK != 0;
    if is_partial || !is_stream(fd) || kind::ask_nonblocking(fd) {
        return block::in_kernel(|| receive_once(fd, room, flags));
    }
    let deadline = block::timeout(fd, Way::In);
    let now = flags & !libc::MSG_WAITALL | libc::MSG_DONTWAIT;
    let mut done = 0;
    while done < room.size {
        let at = room.at.wrapping_byte_add(done);
        let rest = Room { at, size: room.size - done, ..room };
        let result = match receive_once(fd, rest, now) {
            super::EAGAIN => {
                block::wait_until(fd, Way::In, deadline, &mut |_| receive_once(fd, rest, now))
            }
            result => result,
        };
        match result {
            error if error < 0 && done == 0 => return error,
            ..=0 => break,
            read => done += read as usize,
        }
    }
    done as isize
}

/// Returns whether `fd` is a socket whose data have no boundaries.
pub(super) fn is_stream(fd: c_int) -> bool {
    kind::option(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

/// What one send passes.
#[derive(Clone, Copy)]
struct Data {
    at: *const c_void,
    size: usize,
    to: *const sockaddr,
    to_size: socklen_t,
}

#[inline]
fn send_data(fd: c_int, data: Data, flags: c_int) -> isize {
    let Data { at, size, to, to_size } = data;
    send_all(fd, size, flags & libc::MSG_DONTWAIT != 0, |done, now| {
        // After a part is out, a broken connection is the next call's error and signal.
        let more = if done > 0 { libc::MSG_NOSIGNAL } else { 0 };
        let flags = flags | more | if now { libc::MSG_DONTWAIT } else { 0 };
        let (at, size) = (at.wrapping_byte_add(done), size - done);
        // SAFETY: the caller's memory.
        unsafe { syscall!(libc::SYS_sendto, fd, at, size, flags, to, to_size) }
    })
}

fn bytes(at: *mut c_void, size: usize) -> Room {
    Room { at, size, from: ptr::null_mut(), from_size: ptr::null_mut() }
}

/// POSIX's `setsockopt`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    size: socklen_t,
) -> c_int {
    // SAFETY: the caller's contract; the function has this type.
    let result = unsafe {
        real!(setsockopt(
            fd: c_int, level: c_int, option: c_int, value: *const c_void, size: socklen_t
        ) -> c_int)
    };
    if level == libc::SOL_SOCKET && option == libc::SO_RCVLOWAT {
        kind::forget(fd);
    }
    result
}

points! {
    recv(fd: c_int, at: *mut c_void, size: usize, flags: c_int) -> isize {
        receive(fd, bytes(at, size), flags)
    }
    __recv_chk(fd: c_int, at: *mut c_void, size: usize, room: usize, flags: c_int) -> isize {
        if size > room {
            // SAFETY: the caller's arguments; it does not return.
            return unsafe {
                real!(__recv_chk(
                    fd: c_int, at: *mut c_void, size: usize, room: usize, flags: c_int
                ) -> isize)
            };
        }
        receive(fd, bytes(at, size), flags)
    }
    recvfrom(
        fd: c_int,
        at: *mut c_void,
        size: usize,
        flags: c_int,
        from: *mut sockaddr,
        from_size: *mut socklen_t,
    ) -> isize {
        receive(fd, Room { at, size, from, from_size }, flags)
    }
    __recvfrom_chk(
        fd: c_int,
        at: *mut c_void,
        size: usize,
        room: usize,
        flags: c_int,
        from: *mut sockaddr,
        from_size: *mut socklen_t,
    ) -> isize {
        if size > room {
            // SAFETY: the caller's arguments; it does not return.
            return unsafe {
                real!(__recvfrom_chk(
                    fd: c_int, at: *mut c_void, size: usize, room: usize, flags: c_int,
                    from: *mut sockaddr, from_size: *mut socklen_t
                ) -> isize)
            };
        }
        receive(fd, Room { at, size, from, from_size }, flags)
    }
    send(fd: c_int, at: *const c_void, size: usize, flags: c_int) -> isize {
        send_data(fd, Data { at, size, to: ptr::null(), to_size: 0 }, flags)
    }
    __send(fd: c_int, at: *const c_void, size: usize, flags: c_int) -> isize {
        send_data(fd, Data { at, size, to: ptr::null(), to_size: 0 }, flags)
    }
    sendto(
        fd: c_int,
        at: *const c_void,
        size: usize,
        flags: c_int,
        to: *const sockaddr,
        to_size: socklen_t,
    ) -> isize {
        send_data(fd, Data { at, size, to, to_size }, flags)
    }
}
