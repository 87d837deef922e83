//! The calls for C programs. The header documents them; the comments here say what the pointers must be.

mod base;
mod event;
mod heddle;

use crate::base::Base;
use heddle_events::EventError;
use libc::{c_int, timeval};
use std::ffi::{CStr, c_char};
use std::sync::Arc;
use std::time::Duration;

const OK: c_int = 0;
const FAILED: c_int = -1;

/// Sets `errno` and returns -1.
fn fail(number: c_int) -> c_int {
    // SAFETY: the address of the calling thread's errno.
    unsafe { *libc::__errno_location() = number };
    FAILED
}

fn result_of(result: Result<(), EventError>) -> c_int {
    result.map_or_else(|error| fail(error.errno()), |()| OK)
}

/// Returns the base at `at`, kept alive for the call.
///
/// # Safety
/// `at` is null or from `event_base_new`, and `event_base_free` has not been called for it.
unsafe fn base_at(at: *const Base) -> Option<Arc<Base>> {
    if at.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; the program's own reference stays.
    unsafe {
        Arc::increment_strong_count(at);
        Some(Arc::from_raw(at))
    }
}

/// Returns the time at `at`: `Ok(None)` for null, an error for an invalid time.
///
/// # Safety
/// `at` is null or points to a time.
unsafe fn time_at(at: *const timeval) -> Result<Option<Duration>, c_int> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let time = unsafe { *at };
    crate::abi::duration(time).map(Some).ok_or(libc::EINVAL)
}

/// Returns the text at `at`.
///
/// # Safety
/// `at` is null or a string that ends in zero and stays unchanged while the result is used.
unsafe fn text_at<'a>(at: *const c_char) -> Option<&'a str> {
    if at.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(at) }.to_str().ok()
}
