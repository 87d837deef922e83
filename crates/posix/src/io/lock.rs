//! Locks of files, and the rest of `fcntl`.

use super::block::in_kernel;
use super::{kind, points};
use crate::cancel;
use crate::real::real;
use crate::sys::syscall;
use heddle_rt::raw::Caller;
use std::ffi::{c_int, c_long};

const EACCES: isize = -(libc::EACCES as isize);

fn lock_whole(fd: c_int, how: c_int) -> isize {
    // SAFETY: no memory.
    let call = |how: c_int| unsafe { syscall!(libc::SYS_flock, fd, how) };
    match call(how | libc::LOCK_NB) {
        super::EAGAIN if how & libc::LOCK_NB == 0 => in_kernel(|| call(how)),
        result => result,
    }
}

/// Takes a lock of part of a file. `how` is one of the commands that wait, and `now` the one that does not.
fn lock_part(fd: c_int, how: c_int, now: c_int, part: usize) -> isize {
    // SAFETY: the caller's memory.
    let call = |how: c_int| unsafe { syscall!(libc::SYS_fcntl, fd, how, part) };
    match call(now) {
        super::EAGAIN | EACCES => in_kernel(|| call(how)),
        result => result,
    }
}

/// What `fcntl` does. The third argument, if there is one, is an integer or a pointer: both are passed alike.
unsafe fn control(fd: c_int, command: c_int, argument: usize) -> c_int {
    let now = match command {
        libc::F_SETLKW => libc::F_SETLK,
        libc::F_OFD_SETLKW => libc::F_OFD_SETLK,
        _ => {
            // SAFETY: the caller's contract. The function takes its arguments as this type does.
            let result =
                unsafe { real!(fcntl(fd: c_int, command: c_int, argument: usize) -> c_int) };
            if command == libc::F_SETFL {
                kind::forget(fd);
            }
            return result;
        }
    };
    if Caller::here() != Caller::Task {
        // SAFETY: as above.
        return unsafe { real!(fcntl(fd: c_int, command: c_int, argument: usize) -> c_int) };
    }
    cancel::point();
    super::done(lock_part(fd, command, now, argument)) as c_int
}

/// POSIX's `fcntl`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { control(fd, command, argument) }
}

/// POSIX's `fcntl`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { control(fd, command, argument) }
}

/// POSIX's `fcntl`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { control(fd, command, argument) }
}

fn lock_from_here(fd: c_int, command: c_int, size: c_long) -> isize {
    let call = |command: c_int| {
        // SAFETY: no memory.
        match unsafe { real!(lockf(fd: c_int, command: c_int, size: c_long) -> c_int) } {
            -1 => -(crate::errno::get() as isize),
            result => result as isize,
        }
    };
    if command != libc::F_LOCK {
        return call(command);
    }
    match call(libc::F_TLOCK) {
        super::EAGAIN | EACCES => in_kernel(|| call(command)),
        result => result,
    }
}

points! {
    flock(fd: c_int, how: c_int) -> c_int {
        lock_whole(fd, how)
    }
    lockf(fd: c_int, command: c_int, size: c_long) -> c_int {
        lock_from_here(fd, command, size)
    }
    lockf64(fd: c_int, command: c_int, size: c_long) -> c_int {
        lock_from_here(fd, command, size)
    }
}
