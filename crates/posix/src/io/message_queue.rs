//! POSIX message queues, whose descriptors can be waited for.
//!
//! A call with a time limit that has passed does what it can at once, and returns ETIMEDOUT if it would wait: that is
//! the form that does not block.

use super::block::{self, Patience, Waited, Way};
use super::{EAGAIN, EINTR, EINVAL, close, kind, points};
use crate::clock;
use crate::real::real;
use crate::sys::syscall;
use heddle_core::Ns;
use libc::{mq_attr, mqd_t, timespec};
use std::ffi::{c_char, c_int, c_uint};
use std::ptr;

const ETIMEDOUT: isize = -(libc::ETIMEDOUT as isize);

/// Makes `call`, whose argument is its time limit in the kernel's form, and waits for the queue until `limit`, a time
/// of the system's clock.
fn exchange(
    queue: mqd_t,
    way: Way,
    limit: *const timespec,
    call: impl Fn(*const timespec) -> isize,
) -> isize {
    if kind::known(queue).is_nonblocking() {
        return call(limit);
    }
    let past = clock::timespec(Ns::ZERO);
    let mut now = || match call(&raw const past) {
        ETIMEDOUT => EAGAIN,
        result => result,
    };
    match now() {
        // The program's O_NONBLOCK.
        EAGAIN if kind::ask_nonblocking(queue) => EAGAIN,
        EAGAIN => exchange_later(queue, way, limit, &mut now, &call),
        result => result,
    }
}

#[cold]
fn exchange_later(
    queue: mqd_t,
    way: Way,
    limit: *const timespec,
    now: &mut dyn FnMut() -> isize,
    call: &dyn Fn(*const timespec) -> isize,
) -> isize {
    // SAFETY: null or the caller's time.
    let limit_time = unsafe { limit.as_ref() };
    let deadline = limit_time.map(|time| clock::deadline(libc::CLOCK_REALTIME, time)).transpose();
    let Ok(deadline) = deadline else { return EINVAL };
    // SAFETY: as above. The kernel refuses times before the epoch.
    if limit_time.is_some_and(|time| time.tv_sec < 0) {
        return EINVAL;
    }
    // These go on after a handler with SA_RESTART, whether or not they have a limit.
    let patience = Patience { deadline, restarts: true };
    match block::when_ready(queue, way.events(), patience, now) {
        Waited::Done(result) => result,
        Waited::TimedOut => ETIMEDOUT,
        Waited::Interrupted => EINTR,
        Waited::Refused => block::in_kernel(|| call(limit)),
    }
}

fn send(
    queue: mqd_t,
    message: *const c_char,
    size: usize,
    priority: c_uint,
    limit: *const timespec,
) -> isize {
    exchange(queue, Way::Out, limit, |limit| {
        // SAFETY: the caller's memory.
        unsafe { syscall!(libc::SYS_mq_timedsend, queue, message, size, priority, limit) }
    })
}

fn receive(
    queue: mqd_t,
    message: *mut c_char,
    size: usize,
    priority: *mut c_uint,
    limit: *const timespec,
) -> isize {
    exchange(queue, Way::In, limit, |limit| {
        // SAFETY: the caller's memory.
        unsafe { syscall!(libc::SYS_mq_timedreceive, queue, message, size, priority, limit) }
    })
}

points! {
    mq_send(queue: mqd_t, message: *const c_char, size: usize, priority: c_uint) -> c_int {
        send(queue, message, size, priority, ptr::null())
    }
    mq_timedsend(
        queue: mqd_t,
        message: *const c_char,
        size: usize,
        priority: c_uint,
        limit: *const timespec,
    ) -> c_int {
        send(queue, message, size, priority, limit)
    }
    mq_receive(queue: mqd_t, message: *mut c_char, size: usize, priority: *mut c_uint) -> isize {
        receive(queue, message, size, priority, ptr::null())
    }
    mq_timedreceive(
        queue: mqd_t,
        message: *mut c_char,
        size: usize,
        priority: *mut c_uint,
        limit: *const timespec,
    ) -> isize {
        receive(queue, message, size, priority, limit)
    }
}

/// POSIX's `mq_close`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mq_close(queue: mqd_t) -> c_int {
    close::closes(queue);
    // SAFETY: the caller's contract.
    unsafe { real!(mq_close(queue: mqd_t) -> c_int) }
}

/// POSIX's `mq_setattr`, which sets and resets O_NONBLOCK.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mq_setattr(queue: mqd_t, new: *const mq_attr, old: *mut mq_attr) -> c_int {
    // SAFETY: the caller's contract; the function has this type.
    let result =
        unsafe { real!(mq_setattr(queue: mqd_t, new: *const mq_attr, old: *mut mq_attr) -> c_int) };
    kind::forget(queue);
    result
}
