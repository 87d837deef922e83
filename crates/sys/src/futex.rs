//! Sleeping on a word.

use core::sync::atomic::AtomicU32;
use heddle_core::Ns;

/// Sleeps while `word` is `expected`, for at most `timeout`. May return early for no reason.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Ns>) {
    let ts = timeout.map(timespec);
    let ts = ts.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the word is valid for the call, and the time is null or valid.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            ts,
        )
    };
}

/// Wakes up to `n` threads that sleep on `word`.
pub fn wake(word: &AtomicU32, n: u32) {
    // SAFETY: the address is only a key for the kernel.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            n,
        )
    };
}

/// Converts `ns` to the kernel's form.
pub(crate) fn timespec(ns: Ns) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns.0 / 1_000_000_000).min(i64::MAX as u64) as i64,
        tv_nsec: (ns.0 % 1_000_000_000) as i64,
    }
}
