//! `read` and `write`: descriptors of any kind.

use super::block::{self, Way};
use super::kind::{self, Kind};
use super::parts::{self, Window};
use super::{EAGAIN, EINVAL, ENOTSOCK, EOPNOTSUPP, file, points, ready};
use crate::real::real;
use crate::sys::syscall;
use libc::{iovec, msghdr};
use std::ffi::{c_int, c_void};

/// The position of a descriptor itself.
pub(super) const HERE: i64 = -1;

/// What counters and timers are read by. They refuse less at once, whether or not they are ready.
const COUNTER: usize = 8;

/// A message that consists of `window` only.
pub(super) fn message(window: &Window) -> msghdr {
    // SAFETY: all zeros is a value of the structure.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = window.as_ptr().cast_mut();
    message.msg_iovlen = window.len();
    message
}

fn plain_read(fd: c_int, list: &[iovec]) -> isize {
    // SAFETY: the caller's buffers.
    unsafe { syscall!(libc::SYS_readv, fd, list.as_ptr(), list.len()) }
}

/// Makes `call`, which reads in the kernel, if there is something to read, and waits for that if not.
fn read_when_ready(fd: c_int, call: impl Fn() -> isize) -> isize {
    block::call(fd, Way::In, |now| match now {
        true => kind::if_ready(fd, ready::IN, &call),
        false => call(),
    })
}

/// Reads into `list`. `call` does the same in the kernel, where it may block.
fn read_list(fd: c_int, list: &[iovec], call: impl Fn() -> isize) -> isize {
    let kind = kind::of(fd);
    if kind.is_nonblocking() || parts::total(list) == 0 {
        return call();
    }
    let result = if kind.has_low_water() {
        block::in_kernel(&call)
    } else if kind.is(Kind::SOCKET) {
        let mut message = message(&Window::new(&[], 0));
        (message.msg_iov, message.msg_iovlen) = (list.as_ptr().cast_mut(), list.len());
        block::call(fd, Way::In, |now| match now {
            // SAFETY: the caller's buffers.
            true => unsafe {
                syscall!(libc::SYS_recvmsg, fd, &raw mut message, libc::MSG_DONTWAIT)
            },
            false => call(),
        })
    } else if kind.is(Kind::PIPE) {
        block::call(fd, Way::In, |now| match now {
            true => file::read_now(fd, list, HERE),
            false => call(),
        })
    } else if kind.is(Kind::FILE) && !kind.is_plain() {
        file::read(fd, list, HERE)
    } else if kind.is(Kind::FILE) {
        return call();
    } else if kind.is(Kind::OTHER) && parts::total(list) < COUNTER {
        return block::in_kernel(call);
    } else {
        return read_when_ready(fd, call);
    };
    match result {
        // The kind is another by now, or has no form that does not block.
        ENOTSOCK | EOPNOTSUPP | EINVAL => again(fd, result, call),
        EAGAIN if kind.is(Kind::FILE) => again(fd, result, call),
        _ => result,
    }
}

/// Reads once more after what was believed of `fd` has led to the error `result`.
#[cold]
fn again(fd: c_int, result: isize, call: impl Fn() -> isize) -> isize {
    if kind::learn(fd).is(Kind::FILE) {
        if result == EOPNOTSUPP {
            kind::set_plain(fd);
        }
        return block::in_kernel(call);
    }
    read_when_ready(fd, call)
}

fn read_one(fd: c_int, buffer: *mut c_void, size: usize) -> isize {
    let one = iovec { iov_base: buffer, iov_len: size };
    // A socket's most common case, without a message's header.
    let kind = kind::known(fd);
    if kind == Kind::SOCKET && size != 0 {
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: the caller's buffer.
        let result = unsafe { syscall!(libc::SYS_recvfrom, fd, buffer, size, flags, 0, 0) };
        if result >= 0 {
            return result;
        }
    }
    // SAFETY: the caller's buffer.
    read_list(fd, &[one], || unsafe { syscall!(libc::SYS_read, fd, buffer, size) })
}

/// Writes `list` in the kernel, without its first `done` bytes.
fn write_rest(fd: c_int, list: &[iovec], done: usize) -> isize {
    let window = Window::new(list, done);
    // SAFETY: the caller's buffers.
    unsafe { syscall!(libc::SYS_writev, fd, window.as_ptr(), window.len()) }
}

/// As [`write_rest`], but does not block.
fn write_rest_now(fd: c_int, list: &[iovec], done: usize) -> isize {
    let window = Window::new(list, done);
    let (at, count, flags) = (window.as_ptr(), window.len(), libc::RWF_NOWAIT);
    // SAFETY: the caller's buffers.
    unsafe { syscall!(libc::SYS_pwritev2, fd, at, count, HERE, HERE, flags) }
}

/// Writes all of `list`. `call` does the same in the kernel, where it may block.
fn write_list(fd: c_int, list: &[iovec], call: impl Fn() -> isize) -> isize {
    let kind = kind::of(fd);
    if kind.is_nonblocking() || kind.is(Kind::FILE) || kind.is(Kind::OTHER) {
        return call();
    }
    let size = parts::total(list);
    let result = if kind.is(Kind::SOCKET) {
        send_all(fd, size, false, |done, now| {
            let more = if done > 0 { libc::MSG_NOSIGNAL } else { 0 };
            let flags = if now { libc::MSG_DONTWAIT | more } else { more };
            let window = Window::new(list, done);
            let message = message(&window);
            // SAFETY: the caller's buffers.
            unsafe { syscall!(libc::SYS_sendmsg, fd, &raw const message, flags) }
        })
    } else if kind.is(Kind::PIPE) {
        send_all(fd, size, false, |done, now| match now {
            true => write_rest_now(fd, list, done),
            false => write_rest(fd, list, done),
        })
    } else {
        block::call(fd, Way::Out, |now| match now {
            true => kind::if_ready(fd, ready::OUT, &call),
            false => call(),
        })
    };
    match result {
        ENOTSOCK | EOPNOTSUPP | EINVAL => {
            kind::learn(fd);
            call()
        }
        _ => result,
    }
}

/// Makes `send` until all `size` bytes are out. Its arguments are how many are out already, and whether it must not
/// block. `never_waits` is the program's wish for this call.
#[inline]
pub(super) fn send_all(
    fd: c_int,
    size: usize,
    never_waits: bool,
    mut send: impl FnMut(usize, bool) -> isize,
) -> isize {
    if kind::known(fd).is_nonblocking() {
        return send(0, false);
    }
    let first = send(0, true);
    let is_over = first == size as isize || first < 0 && first != EAGAIN;
    if is_over || never_waits { first } else { send_rest(fd, size, first, &mut send) }
}

#[cold]
fn send_rest(
    fd: c_int,
    size: usize,
    first: isize,
    send: &mut dyn FnMut(usize, bool) -> isize,
) -> isize {
    if kind::ask_nonblocking(fd) {
        return first;
    }
    let deadline = block::timeout(fd, Way::Out);
    let mut done = first.max(0) as usize;
    while done < size {
        let result = block::wait_until(fd, Way::Out, deadline, &mut |now| send(done, now));
        match result {
            error if error < 0 && done == 0 => return error,
            ..=0 => break,
            sent => done += sent as usize,
        }
    }
    done as isize
}

fn write_one(fd: c_int, buffer: *const c_void, size: usize) -> isize {
    let one = iovec { iov_base: buffer.cast_mut(), iov_len: size };
    // SAFETY: the caller's buffer.
    write_list(fd, &[one], || unsafe { syscall!(libc::SYS_write, fd, buffer, size) })
}

points! {
    read(fd: c_int, buffer: *mut c_void, size: usize) -> isize {
        read_one(fd, buffer, size)
    }
    __read(fd: c_int, buffer: *mut c_void, size: usize) -> isize {
        read_one(fd, buffer, size)
    }
    __read_chk(fd: c_int, buffer: *mut c_void, size: usize, room: usize) -> isize {
        if size > room {
            // SAFETY: the caller's arguments; it does not return.
            return unsafe {
                real!(__read_chk(fd: c_int, buffer: *mut c_void, size: usize, room: usize) -> isize)
            };
        }
        read_one(fd, buffer, size)
    }
    readv(fd: c_int, list: *const iovec, count: c_int) -> isize {
        let call = |list: &[iovec]| plain_read(fd, list);
        // SAFETY: the caller's list.
        match unsafe { parts::list(list, count as usize) } {
            // SAFETY: the kernel finds the error, if it is one.
            [] => unsafe { syscall!(libc::SYS_readv, fd, list, count) },
            list => read_list(fd, list, || call(list)),
        }
    }
    write(fd: c_int, buffer: *const c_void, size: usize) -> isize {
        write_one(fd, buffer, size)
    }
    __write(fd: c_int, buffer: *const c_void, size: usize) -> isize {
        write_one(fd, buffer, size)
    }
    writev(fd: c_int, list: *const iovec, count: c_int) -> isize {
        // SAFETY: the caller's list; the kernel finds the error, if there is one.
        let call = || unsafe { syscall!(libc::SYS_writev, fd, list, count) };
        // SAFETY: the caller's list.
        match unsafe { parts::list(list, count as usize) } {
            [] => call(),
            list => write_list(fd, list, call),
        }
    }
}
