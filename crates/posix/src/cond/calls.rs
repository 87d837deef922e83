//! The calls.

use super::{Cond, Until, wait};
use crate::mutex::in_kernel;
use crate::real::real;
use crate::wait as queue;
use libc::{clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, timespec};
use std::ffi::c_int;

/// POSIX's `pthread_cond_wait`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { wait(cond, mutex, None) }
}

/// POSIX's `pthread_cond_timedwait`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_timedwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { wait(cond, mutex, Some(Until { clock: None, time: &*time })) }
}

/// POSIX's `pthread_cond_clockwait`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_clockwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { wait(cond, mutex, Some(Until { clock: Some(clock), time: &*time })) }
}

/// POSIX's `pthread_cond_signal`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let object = Cond::of(cond);
        if !object.is_shared() {
            object.signal();
            return 0;
        }
        queue::wake(object.key(), 1, u32::MAX);
        real!(pthread_cond_signal(cond: *mut pthread_cond_t) -> c_int)
    }
}

/// POSIX's `pthread_cond_broadcast`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let object = Cond::of(cond);
        if !object.is_shared() {
            object.broadcast();
            return 0;
        }
        queue::wake(object.key(), usize::MAX, u32::MAX);
        real!(pthread_cond_broadcast(cond: *mut pthread_cond_t) -> c_int)
    }
}

/// POSIX's `pthread_cond_destroy`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_destroy(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let object = Cond::of(cond);
        if object.is_shared() {
            return in_kernel(|| real!(pthread_cond_destroy(cond: *mut pthread_cond_t) -> c_int));
        }
        object.destroy();
    }
    0
}

/// POSIX's `pthread_cond_init`. Here so that old programs, too, get the C library's default version.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_init(
    cond: *mut pthread_cond_t,
    attr: *const pthread_condattr_t,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        real!(pthread_cond_init(
            cond: *mut pthread_cond_t,
            attr: *const pthread_condattr_t,
        ) -> c_int)
    }
}
