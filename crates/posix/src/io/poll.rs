//! `poll`: several descriptors at once.

use super::block::{self, MOST, Patience, Waited};
use super::epoll::of_ms;
use super::{EINTR, after, points, ready};
use crate::clock;
use crate::real::real;
use crate::sys::syscall;
use heddle_core::Ns;
use libc::{nfds_t, pollfd, sigset_t, timespec};
use std::ffi::c_int;
use std::ptr;

fn wait(fds: *mut pollfd, count: nfds_t, limit: Option<Ns>) -> isize {
    // SAFETY: the caller's memory.
    let now = || ready::look(|| unsafe { syscall!(libc::SYS_poll, fds, count, 0) });
    let first = now();
    if first != 0 || limit == Some(Ns::ZERO) {
        return first;
    }
    wait_longer(fds, count, limit.and_then(after), now)
}

#[cold]
fn wait_longer(
    fds: *mut pollfd,
    count: nfds_t,
    deadline: Option<Ns>,
    mut now: impl FnMut() -> isize,
) -> isize {
    let mut wanted = [(0, 0); MOST];
    let mut used = 0;
    let mut fits = true;
    for nth in 0..count as usize {
        // SAFETY: the caller's memory, which the kernel has accepted.
        let entry = unsafe { &*fds.add(nth) };
        if entry.fd < 0 {
            continue;
        }
        if used == MOST {
            fits = false;
            break;
        }
        // The bits are those of epoll.
        wanted[used] = (entry.fd, u32::from(entry.events as u16));
        used += 1;
    }
    let waited = match fits {
        true => block::when_any(&wanted[..used], Patience::of_poll(deadline), &mut now),
        false => Waited::Refused,
    };
    match waited {
        Waited::Done(result) => result,
        Waited::TimedOut => 0,
        Waited::Interrupted => EINTR,
        Waited::Refused => block::in_kernel_as(false, || {
            let mut rest = deadline.map(|at| clock::timespec(at - heddle_sys::clock::now()));
            let rest = rest.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
            // SAFETY: the caller's memory, and a valid time or none.
            unsafe { syscall!(libc::SYS_ppoll, fds, count, rest, 0, 8) }
        }),
    }
}

fn wait_masked(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> isize {
    // SAFETY: the caller's memory, or null.
    match unsafe { limit.as_ref() }.map(clock::span) {
        Some(None) => super::EINVAL,
        span => super::with_mask(mask, || wait(fds, count, span.flatten())),
    }
}

points! {
    poll(fds: *mut pollfd, count: nfds_t, ms: c_int) -> c_int {
        wait(fds, count, of_ms(ms))
    }
    __poll(fds: *mut pollfd, count: nfds_t, ms: c_int) -> c_int {
        wait(fds, count, of_ms(ms))
    }
    __poll_chk(fds: *mut pollfd, count: nfds_t, ms: c_int, room: usize) -> c_int {
        if room / size_of::<pollfd>() < count as usize {
            // SAFETY: the caller's arguments; it does not return.
            return unsafe {
                real!(__poll_chk(
                    fds: *mut pollfd, count: nfds_t, ms: c_int, room: usize
                ) -> c_int)
            };
        }
        wait(fds, count, of_ms(ms))
    }
    ppoll(
        fds: *mut pollfd,
        count: nfds_t,
        limit: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        wait_masked(fds, count, limit, mask)
    }
    __ppoll_chk(
        fds: *mut pollfd,
        count: nfds_t,
        limit: *const timespec,
        mask: *const sigset_t,
        room: usize,
    ) -> c_int {
        if room / size_of::<pollfd>() < count as usize {
            // SAFETY: as above.
            return unsafe {
                real!(__ppoll_chk(
                    fds: *mut pollfd, count: nfds_t, limit: *const timespec,
                    mask: *const sigset_t, room: usize
                ) -> c_int)
            };
        }
        wait_masked(fds, count, limit, mask)
    }
}
