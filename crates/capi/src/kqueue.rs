//! kqueue's calls under names that are libheddle's: `include/heddle/event.h`. What they do is in [`crate::events`].

use crate::events::calls;
use crate::events::raw::Kevent;
use std::ffi::{c_char, c_int};

/// See the header.
// SAFETY: the header declares it, and no other library has a name that begins with heddle_.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_kqueue() -> c_int {
    calls::kqueue()
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_kqueue1(flags: c_int) -> c_int {
    calls::kqueue1(flags)
}

/// See the header.
///
/// # Safety
/// `changes` has `nchanges` entries, `events` room for `nevents`, `timeout` is null or points to a time.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_kevent(
    kq: c_int,
    changes: *const Kevent,
    nchanges: c_int,
    events: *mut Kevent,
    nevents: c_int,
    timeout: *const libc::timespec,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { calls::kevent(kq, changes, nchanges, events, nevents, timeout) }
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_kqueue_close(kq: c_int) -> c_int {
    calls::close(kq)
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_kqueue_leave(kq: c_int) -> c_int {
    calls::leave(kq)
}

/// See the header.
///
/// # Safety
/// `policy` is a string.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_kqueue_policy(kq: c_int, policy: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { calls::policy(kq, policy) }
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_kqueue_multi(kq: c_int, word: u32) -> c_int {
    calls::multi(kq, word)
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_kqueue_tune(kq: c_int, word: u32) -> c_int {
    calls::tune(kq, word)
}

/// See the header.
///
/// # Safety
/// `text` has room for `size` bytes.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_kqueue_stats(kq: c_int, text: *mut c_char, size: usize) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { calls::stats(kq, text, size) }
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_kqueue_share(kq: c_int, percent: u32) -> c_int {
    calls::share(kq, percent)
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_kqueue_frequency(kq: c_int, hertz: u32) -> c_int {
    calls::frequency(kq, hertz)
}
