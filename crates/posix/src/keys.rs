//! The names of thread-specific data that the C library resolves inside itself.
//!
//! The runtime defines `pthread_key_create` and its siblings, to run the destructors of a task. These names would reach
//! the C library's own table without them: the destructors would never run.

use std::ffi::{c_int, c_void};

type Dtor = unsafe extern "C" fn(*mut c_void);

/// C11's results.
const THRD_SUCCESS: c_int = 0;
const THRD_ERROR: c_int = 2;

fn thrd(error: c_int) -> c_int {
    if error == 0 { THRD_SUCCESS } else { THRD_ERROR }
}

/// glibc's other name of `pthread_key_create`, by which C++ libraries find out whether there are threads.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_key_create(
    key: *mut libc::pthread_key_t,
    dtor: Option<Dtor>,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { libc::pthread_key_create(key, dtor) }
}

/// C11's `tss_create`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tss_create(key: *mut libc::pthread_key_t, dtor: Option<Dtor>) -> c_int {
    // SAFETY: the caller's contract; glibc's `tss_t` is a `pthread_key_t`.
    thrd(unsafe { libc::pthread_key_create(key, dtor) })
}

/// C11's `tss_delete`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tss_delete(key: libc::pthread_key_t) {
    // SAFETY: the caller's contract.
    unsafe { libc::pthread_key_delete(key) };
}

/// C11's `tss_set`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tss_set(key: libc::pthread_key_t, value: *mut c_void) -> c_int {
    // SAFETY: the caller's contract.
    thrd(unsafe { libc::pthread_setspecific(key, value) })
}
