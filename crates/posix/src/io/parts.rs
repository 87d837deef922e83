//! Part of a list of buffers.

use libc::iovec;
use std::ptr;

/// The most buffers that are passed at a time.
const WINDOW: usize = 16;

/// Some buffers of a list, from a given byte on.
pub(super) struct Window {
    parts: [iovec; WINDOW],
    count: usize,
}

impl Window {
    /// Returns the buffers of `list` without their first `skip` bytes, as many as fit.
    pub(super) fn new(list: &[iovec], mut skip: usize) -> Window {
        let none = iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut window = Window { parts: [none; WINDOW], count: 0 };
        for part in list {
            if skip >= part.iov_len {
                skip -= part.iov_len;
                continue;
            }
            if window.count == WINDOW {
                break;
            }
            let iov_base = part.iov_base.wrapping_byte_add(skip);
            window.parts[window.count] = iovec { iov_base, iov_len: part.iov_len - skip };
            window.count += 1;
            skip = 0;
        }
        window
    }

    pub(super) fn as_ptr(&self) -> *const iovec {
        self.parts.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }
}

/// Returns the list that a program passed.
///
/// # Safety
/// `list` has `count` entries, or `count` is not positive.
pub(super) unsafe fn list<'a>(list: *const iovec, count: usize) -> &'a [iovec] {
    if list.is_null() || count == 0 || count > libc::UIO_MAXIOV as usize {
        return &[];
    }
    // SAFETY: by the caller's promise.
    unsafe { std::slice::from_raw_parts(list, count) }
}

/// Returns the number of bytes in all buffers.
pub(super) fn total(list: &[iovec]) -> usize {
    list.iter().fold(0, |sum, part| sum.saturating_add(part.iov_len))
}
