//! Results as C functions return them.

pub(crate) use heddle_rt::raw::of_kernel;

use std::ffi::c_int;

/// Returns the calling thread's `errno`.
pub(crate) fn get() -> c_int {
    // SAFETY: the location is the calling thread's.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub(crate) fn set(error: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
}

/// Returns -1 with `errno` set.
pub(crate) fn fail(error: c_int) -> c_int {
    set(error);
    -1
}
