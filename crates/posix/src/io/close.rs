//! What changes the meaning of a descriptor's number.

use super::kind::{self, FDS};
use super::ready;
use crate::real::real;
use heddle_rt::raw::Caller;
use std::ffi::{c_int, c_uint, c_ulong};

/// Called in any thread before `fd` is closed.
#[inline]
pub(super) fn closes(fd: c_int) {
    kind::forget(fd);
    ready::closes(fd);
}

/// Called in any thread after the number `fd`, or -1, has been given to another descriptor. In the kernel, a call that
/// waits there would go on with the old one, which only the kernel can still name. Here it goes on with the new one, as
/// if it had been made just now.
fn replaced(fd: c_int) {
    if fd >= 0 {
        kind::forget(fd);
        ready::replaced(fd);
    }
}

/// POSIX's `close`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if Caller::here() == Caller::Task {
        crate::cancel::point();
    }
    closes(fd);
    // SAFETY: the caller's contract.
    unsafe { real!(close(fd: c_int) -> c_int) }
}

/// POSIX's `close`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __close(fd: c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { close(fd) }
}

/// Linux's `close_range`.
///
/// # Safety
/// Linux's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        (first..=last).take_while(|&fd| (fd as usize) < FDS).for_each(|fd| closes(fd as c_int));
    }
    // SAFETY: the caller's contract.
    unsafe { real!(close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int) }
}

/// BSD's `closefrom`.
///
/// # Safety
/// BSD's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    (first.max(0)..FDS as c_int).for_each(closes);
    // SAFETY: the caller's contract.
    unsafe { real!(closefrom(first: c_int) -> ()) }
}

/// POSIX's `dup2`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { real!(dup2(old: c_int, new: c_int) -> c_int) };
    replaced(result);
    result
}

/// POSIX's `dup2`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { dup2(old, new) }
}

/// Linux's `dup3`.
///
/// # Safety
/// Linux's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { real!(dup3(old: c_int, new: c_int, flags: c_int) -> c_int) };
    replaced(result);
    result
}

/// BSD's `ioctl`, which may make a descriptor block, or no longer.
///
/// # Safety
/// The request's contract. The third argument, if there is one, is an integer or a pointer: both are passed alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: the caller's contract. The function takes its arguments as this type does.
    let result = unsafe { real!(ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int) };
    if request == libc::FIONBIO {
        kind::forget(fd);
    }
    result
}
