//! libheddle_kqueue: the calls of [`kqueue`] under kqueue's own names, for programs and libraries that look
//! for them. libevent, for example, builds its kqueue backend if its configuration can link them.
//! `include/kqueue/sys/event.h` documents the calls.

use std::ffi::c_char;

kqueue::export_calls! {
    kqueue,
    kqueue1,
    kevent,
    kqueue_close,
    kqueue_leave,
    kqueue_policy,
    kqueue_multi,
    kqueue_tune,
    kqueue_stats,
    kqueue_share,
    kqueue_frequency,
    kqueue_idle
}

/// Returns the text of the calling thread's last error. See the header.
// SAFETY: the header declares the symbol, and programs that link this library expect it under this name.
#[unsafe(no_mangle)]
pub extern "C" fn kqueue_error() -> *const c_char {
    kqueue::error::last()
}
