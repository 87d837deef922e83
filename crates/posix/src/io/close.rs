//! What changes the meaning of a descriptor's number.

use super::{kind, ready};
use crate::real::real;
use heddle_rt::raw::Caller;
use std::ffi::c_int;

/// Called in any thread before `fd` is closed.
#[inline]
fn closes(fd: c_int) {
    kind::forget(fd);
    ready::closes(fd);
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

/// POSIX's `dup2`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { real!(dup2(old: c_int, new: c_int) -> c_int) };
    kind::forget(new);
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
    kind::forget(new);
    result
}
