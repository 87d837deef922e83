//! The calls.
//!
//! `pthread_mutex_destroy`, `_consistent`, `_getprioceiling` and `_setprioceiling` remain the C library's: they look at
//! the object only.

use super::{Mutex, Patience};
use crate::real::real;
use crate::sys::syscall;
use libc::{clockid_t, pthread_mutex_t, pthread_mutexattr_t, timespec};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

const PTHREAD_PRIO_NONE: c_int = 0;

unsafe extern "C" {
    fn pthread_mutexattr_gettype(attr: *const pthread_mutexattr_t, kind: *mut c_int) -> c_int;
    fn pthread_mutexattr_getprotocol(attr: *const pthread_mutexattr_t, to: *mut c_int) -> c_int;
    fn pthread_mutexattr_getrobust(attr: *const pthread_mutexattr_t, robust: *mut c_int) -> c_int;
    fn pthread_mutexattr_getpshared(attr: *const pthread_mutexattr_t, shared: *mut c_int) -> c_int;
}

/// POSIX's `pthread_mutex_init`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut pthread_mutex_t,
    attr: *const pthread_mutexattr_t,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let (mut kind, mut protocol, mut robust, mut shared) = (0, PTHREAD_PRIO_NONE, 0, 0);
        if !attr.is_null() {
            pthread_mutexattr_gettype(attr, &mut kind);
            pthread_mutexattr_getprotocol(attr, &mut protocol);
            pthread_mutexattr_getrobust(attr, &mut robust);
            pthread_mutexattr_getpshared(attr, &mut shared);
        }
        let is_shared = shared == libc::PTHREAD_PROCESS_SHARED;
        if is_shared && (robust == libc::PTHREAD_MUTEX_ROBUST || protocol != PTHREAD_PRIO_NONE) {
            // The kernel would look for a thread by the holder's number, and a task has none.
            return libc::ENOTSUP;
        }
        if protocol != PTHREAD_PRIO_NONE {
            note_protocol();
            let mut plain = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut plain);
            libc::pthread_mutexattr_settype(&mut plain, kind);
            libc::pthread_mutexattr_setrobust(&mut plain, robust);
            return initialise(mutex, &plain);
        }
        initialise(mutex, attr)
    }
}

/// Calls the C library's `pthread_mutex_init`.
///
/// # Safety
/// POSIX's contract.
unsafe fn initialise(mutex: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t) -> c_int {
    // SAFETY: the function has this type; the caller's contract.
    unsafe {
        let error = real!(pthread_mutex_init(
            mutex: *mut pthread_mutex_t,
            attr: *const pthread_mutexattr_t,
        ) -> c_int);
        if error == 0 {
            Mutex::of(mutex).keep_robust_private();
        }
        error
    }
}

/// Says once that priority protocols are ignored.
#[cold]
fn note_protocol() {
    static NOTED: AtomicBool = AtomicBool::new(false);
    if !NOTED.swap(true, Ordering::Relaxed) {
        let text = "heddle run: mutexes are initialised without their priority protocol: the policy \
                    decides which thread runs\n";
        // SAFETY: the text is valid for the call.
        unsafe { syscall!(libc::SYS_write, libc::STDERR_FILENO, text.as_ptr(), text.len()) };
    }
}

/// POSIX's `pthread_mutex_lock`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { Mutex::of(mutex) }.lock(Patience::Endless)
}

/// POSIX's `pthread_mutex_trylock`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { Mutex::of(mutex) }.try_lock()
}

/// POSIX's `pthread_mutex_timedlock`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_timedlock(
    mutex: *mut pthread_mutex_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { Mutex::of(mutex).lock(Patience::Until(libc::CLOCK_REALTIME, &*time)) }
}

/// POSIX's `pthread_mutex_clocklock`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_clocklock(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    if !matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC) {
        return libc::EINVAL;
    }
    // SAFETY: the caller's contract.
    unsafe { Mutex::of(mutex).lock(Patience::Until(clock, &*time)) }
}

/// POSIX's `pthread_mutex_unlock`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { Mutex::of(mutex) }.unlock()
}

/// glibc's old name of `pthread_mutex_init`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_mutex_init(
    mutex: *mut pthread_mutex_t,
    attr: *const pthread_mutexattr_t,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { pthread_mutex_init(mutex, attr) }
}

/// glibc's old name of `pthread_mutex_lock`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { pthread_mutex_lock(mutex) }
}

/// glibc's old name of `pthread_mutex_trylock`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { pthread_mutex_trylock(mutex) }
}

/// glibc's old name of `pthread_mutex_unlock`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { pthread_mutex_unlock(mutex) }
}
