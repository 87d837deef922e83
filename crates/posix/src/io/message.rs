//! Messages: several buffers, addresses, and what goes with them.

use super::block::{self, Way};
use super::parts::{self, Window};
use super::socket::is_stream;
use super::stream::{message, send_all};
use super::{EAGAIN, after, kind, points};
use crate::clock;
use crate::sys::syscall;
use libc::{mmsghdr, msghdr, timespec};
use std::ffi::{c_int, c_uint};

const DONTWAIT: c_int = libc::MSG_DONTWAIT;

/// Flags with which a receive never waits.
const NEVER_WAITS: c_int = DONTWAIT | libc::MSG_ERRQUEUE;

fn receive(fd: c_int, into: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's memory.
    let call = |flags: c_int| unsafe { syscall!(libc::SYS_recvmsg, fd, into, flags) };
    if flags & NEVER_WAITS != 0 {
        return call(flags);
    }
    if flags & libc::MSG_WAITALL != 0 && is_stream(fd) || kind::of(fd).has_low_water() {
        return block::in_kernel(|| call(flags));
    }
    block::call(fd, Way::In, |now| call(if now { flags | DONTWAIT } else { flags }))
}

fn send(fd: c_int, from: *const msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's memory.
    let call =
        |from: *const msghdr, flags: c_int| unsafe { syscall!(libc::SYS_sendmsg, fd, from, flags) };
    if flags & DONTWAIT != 0 || from.is_null() {
        return call(from, flags);
    }
    // SAFETY: the caller's memory.
    let list = unsafe { parts::list((*from).msg_iov, (*from).msg_iovlen) };
    send_all(fd, parts::total(list), false, |done, now| {
        let flags = flags | if now { DONTWAIT } else { 0 };
        if done == 0 {
            return call(from, flags);
        }
        // What goes with the message went with its first bytes.
        let window = Window::new(list, done);
        call(&message(&window), flags | libc::MSG_NOSIGNAL)
    })
}

fn receive_many(
    fd: c_int,
    into: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> isize {
    let call = |done: usize, flags: c_int, limit: *mut timespec| {
        let (at, left) = (into.wrapping_add(done), count as usize - done);
        // SAFETY: the caller's memory.
        unsafe { syscall!(libc::SYS_recvmmsg, fd, at, left, flags, limit) }
    };
    let none = std::ptr::null_mut();
    if flags & NEVER_WAITS != 0 || count == 0 || kind::known(fd).is_nonblocking() {
        return call(0, flags, limit);
    }
    if kind::of(fd).has_low_water() {
        return block::in_kernel(|| call(0, flags, limit));
    }
    let now = flags & !libc::MSG_WAITFORONE | DONTWAIT;
    // SAFETY: the caller's memory, or null.
    let span = unsafe { limit.as_ref() }.and_then(clock::span);
    let ends = span.and_then(after);
    let first = call(0, now, none);
    if first < 0 && first != EAGAIN {
        return first;
    }
    let mut done = first.max(0) as usize;
    let is_enough = |done: usize| {
        done == count as usize
            || done > 0 && flags & libc::MSG_WAITFORONE != 0
            // The kernel looks at the limit after each message only.
            || done > 0 && ends.is_some_and(|at| at <= heddle_sys::clock::now())
    };
    if !is_enough(done) && kind::ask_nonblocking(fd) {
        return first;
    }
    while !is_enough(done) {
        let deadline = block::timeout(fd, Way::In);
        let received = block::wait_until(fd, Way::In, deadline, &mut |_| call(done, now, none));
        match received {
            error if error < 0 && done == 0 => return error,
            ..=0 => break,
            more => done += more as usize,
        }
    }
    if let (Some(ends), false) = (ends, limit.is_null()) {
        let left = clock::timespec(ends - heddle_sys::clock::now());
        // SAFETY: the caller's memory. As the kernel does.
        unsafe { limit.write(left) };
    }
    done as isize
}

fn send_many(fd: c_int, from: *mut mmsghdr, count: c_uint, flags: c_int) -> isize {
    let call = |done: usize, flags: c_int| {
        let (at, left) = (from.wrapping_add(done), count as usize - done);
        // SAFETY: the caller's memory.
        unsafe { syscall!(libc::SYS_sendmmsg, fd, at, left, flags) }
    };
    if flags & DONTWAIT != 0 || kind::known(fd).is_nonblocking() {
        return call(0, flags);
    }
    let mut done = 0;
    while done < count as usize {
        let sent = call(done, flags | DONTWAIT);
        if sent > 0 {
            done += sent as usize;
            finish_last(fd, from.wrapping_add(done - 1), flags);
            continue;
        }
        // The next message waits, or has an error that belongs to the next call.
        let one = from.wrapping_add(done);
        // SAFETY: the caller's memory.
        let result = unsafe { send(fd, &raw const (*one).msg_hdr, flags) };
        if result < 0 {
            return if done > 0 { done as isize } else { result };
        }
        // SAFETY: as above.
        unsafe { (*one).msg_len = result as c_uint };
        done += 1;
    }
    done as isize
}

/// Sends what the kernel left of the last message that it sent.
fn finish_last(fd: c_int, last: *mut mmsghdr, flags: c_int) {
    // SAFETY: the caller's memory.
    let (list, sent) = unsafe {
        let header = &(*last).msg_hdr;
        (parts::list(header.msg_iov, header.msg_iovlen), (*last).msg_len as usize)
    };
    let size = parts::total(list);
    if sent >= size || kind::ask_nonblocking(fd) {
        return;
    }
    let more = send_all(fd, size - sent, false, |done, now| {
        let window = Window::new(list, sent + done);
        let message = message(&window);
        let flags = flags | libc::MSG_NOSIGNAL | if now { DONTWAIT } else { 0 };
        // SAFETY: the caller's memory.
        unsafe { syscall!(libc::SYS_sendmsg, fd, &raw const message, flags) }
    });
    // SAFETY: as above.
    unsafe { (*last).msg_len = (sent + more.max(0) as usize) as c_uint };
}

points! {
    recvmsg(fd: c_int, into: *mut msghdr, flags: c_int) -> isize {
        receive(fd, into, flags)
    }
    recvmmsg(
        fd: c_int,
        into: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        limit: *mut timespec,
    ) -> c_int {
        receive_many(fd, into, count, flags, limit)
    }
    sendmsg(fd: c_int, from: *const msghdr, flags: c_int) -> isize {
        send(fd, from, flags)
    }
    sendmmsg(fd: c_int, from: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        send_many(fd, from, count, flags)
    }
}
