//! The program's own epoll instances: a task waits for the instance's descriptor.

use super::block::{self, Patience, Waited};
use super::{EAGAIN, EINTR, after, points, ready};
use crate::clock;
use crate::sys::syscall;
use heddle_core::Ns;
use libc::{epoll_event, sigset_t, timespec};
use std::ffi::c_int;
use std::ptr;

/// Waits for events. `limit` is the time to wait; without one, forever.
fn wait(fd: c_int, events: *mut epoll_event, room: c_int, limit: Option<Ns>) -> isize {
    // SAFETY: the caller's memory.
    let now = || unsafe { syscall!(libc::SYS_epoll_wait, fd, events, room, 0) };
    let first = now();
    if first != 0 || limit == Some(Ns::ZERO) {
        return first;
    }
    wait_longer(fd, events, room, limit.and_then(after), now)
}

#[cold]
fn wait_longer(
    fd: c_int,
    events: *mut epoll_event,
    room: c_int,
    deadline: Option<Ns>,
    now: impl Fn() -> isize,
) -> isize {
    let mut look = || match now() {
        0 => EAGAIN,
        result => result,
    };
    match block::when_ready(fd, ready::IN, Patience::of_poll(deadline), &mut look) {
        Waited::Done(result) => result,
        Waited::TimedOut => 0,
        Waited::Interrupted => EINTR,
        Waited::Refused => block::in_kernel_as(false, || {
            let rest = deadline.map(|at| clock::timespec(at - heddle_sys::clock::now()));
            let rest = rest.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: the caller's memory, and a valid time or none.
            unsafe { syscall!(libc::SYS_epoll_pwait2, fd, events, room, rest, 0, 8) }
        }),
    }
}

/// Returns the time that a number of milliseconds means.
pub(super) fn of_ms(ms: c_int) -> Option<Ns> {
    u64::try_from(ms).ok().map(|ms| Ns(ms * 1_000_000))
}

points! {
    epoll_wait(fd: c_int, events: *mut epoll_event, room: c_int, ms: c_int) -> c_int {
        wait(fd, events, room, of_ms(ms))
    }
    epoll_pwait(
        fd: c_int,
        events: *mut epoll_event,
        room: c_int,
        ms: c_int,
        mask: *const sigset_t,
    ) -> c_int {
        super::with_mask(mask, || wait(fd, events, room, of_ms(ms)))
    }
    epoll_pwait2(
        fd: c_int,
        events: *mut epoll_event,
        room: c_int,
        limit: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        // SAFETY: the caller's memory, or null.
        match unsafe { limit.as_ref() }.map(clock::span) {
            Some(None) => super::EINVAL,
            span => super::with_mask(mask, || wait(fd, events, room, span.flatten())),
        }
    }
}
