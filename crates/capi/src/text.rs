//! What C hands in.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{BorrowedFd, OwnedFd};

use heddle_steer::request::Error;

use crate::error::invalid;

/// The text at `at`.
///
/// # Safety
/// `at` is null, or a string that ends in zero and stays as it is for as long as the result is used.
pub unsafe fn text<'a>(at: *const c_char, what: &str) -> Result<&'a str, Error> {
    if at.is_null() {
        return Err(invalid(&format!("{what} is NULL")));
    }
    // SAFETY: not null, and the caller has the rest.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map_err(|_| invalid(&format!("{what} is no UTF-8")))
}

/// `count` values from `at` on.
///
/// # Safety
/// `at` is null, or points to `count` values that stay as they are for as long as the result is used.
pub unsafe fn values<'a, T>(at: *const T, count: usize, what: &str) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() {
        return Err(invalid(&format!("{what} is NULL")));
    }
    // SAFETY: not null, and the caller has the rest.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

/// A descriptor of our own of what `fd` is.
pub fn copy(fd: c_int) -> Result<OwnedFd, Error> {
    if fd < 0 {
        return Err(invalid("a negative descriptor"));
    }
    // SAFETY: the number is not -1; it is used for this one call, which fails with EBADF if nothing is behind it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned().map_err(|error| Error::system(format!("descriptor {fd}"), &error))
}
