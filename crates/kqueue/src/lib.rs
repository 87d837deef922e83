//! libheddle_kqueue: kqueue's calls under their own names, for programs and libraries that look for them: libevent builds its kqueue
//! backend where they can be linked. `include/kqueue/sys/event.h` is its documentation; what the calls do is libheddle's code.

#[path = "../../capi/src/events/mod.rs"]
mod events;

mod error;

use events::calls;
use events::raw::Kevent;
use std::ffi::{c_char, c_int};

/// See the header.
// SAFETY: the header declares it; who links this library wants this name from it.
#[unsafe(no_mangle)]
pub extern "C" fn kqueue() -> c_int {
    calls::kqueue()
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn kqueue1(flags: c_int) -> c_int {
    calls::kqueue1(flags)
}

/// See the header.
///
/// # Safety
/// `changes` has `nchanges` entries, `events` room for `nevents`, `timeout` is null or points to a time.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kevent(
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
pub extern "C" fn kqueue_close(kq: c_int) -> c_int {
    calls::close(kq)
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn kqueue_leave(kq: c_int) -> c_int {
    calls::leave(kq)
}

/// See the header.
///
/// # Safety
/// `policy` is a string.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kqueue_policy(kq: c_int, policy: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { calls::policy(kq, policy) }
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn kqueue_multi(kq: c_int, word: u32) -> c_int {
    calls::multi(kq, word)
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn kqueue_tune(kq: c_int, word: u32) -> c_int {
    calls::tune(kq, word)
}

/// See the header.
///
/// # Safety
/// `text` has room for `size` bytes.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kqueue_stats(kq: c_int, text: *mut c_char, size: usize) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { calls::stats(kq, text, size) }
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn kqueue_share(kq: c_int, percent: u32) -> c_int {
    calls::share(kq, percent)
}

/// See the header.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn kqueue_frequency(kq: c_int, hertz: u32) -> c_int {
    calls::frequency(kq, hertz)
}
