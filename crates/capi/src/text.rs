//! Arguments of C programs.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{BorrowedFd, OwnedFd};

use heddle_steer::request::Error;

use crate::error::invalid;

/// Returns the text at `at`.
///
/// # Safety
/// `at` is null, or a string that ends in zero and stays unchanged for as long as the result is used.
pub unsafe fn text<'a>(at: *const c_char, what: &str) -> Result<&'a str, Error> {
    if at.is_null() {
        return Err(invalid(&format!("{what} is NULL")));
    }
    // SAFETY: not null, and the caller promises the rest.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map_err(|_| invalid(&format!("{what} is not UTF-8")))
}

/// Returns the `count` values at `at`.
///
/// # Safety
/// `at` is null, or points to `count` values that stay unchanged for as long as the result is used.
pub unsafe fn values<'a, T>(at: *const T, count: usize, what: &str) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() {
        return Err(invalid(&format!("{what} is NULL")));
    }
    // SAFETY: not null, and the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

/// Duplicates a descriptor.
pub fn copy(fd: c_int) -> Result<OwnedFd, Error> {
    if fd < 0 {
        return Err(invalid("the descriptor is negative"));
    }
    // SAFETY: the number is not -1; it is used for this one call, which fails with EBADF if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned().map_err(|error| Error::system(format!("descriptor {fd}"), &error))
}
