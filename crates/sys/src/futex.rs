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

/// Sleeps while `word`, which other processes share, is `expected`, as one of the waiters `set`, for at most `timeout`.
/// Returns false if the time is up. May return early for no reason. The memory may be mapped for reading only.
pub fn wait_shared(word: &AtomicU32, expected: u32, set: u32, timeout: Option<Ns>) -> bool {
    // With a set of waiters the timeout is a point in time.
    let until = timeout.map(|time| timespec(crate::clock::now() + time));
    let until = until.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let args = [
        word.as_ptr() as usize,
        libc::FUTEX_WAIT_BITSET as usize,
        expected as usize,
        until as usize,
        0,
        set as usize,
    ];
    // SAFETY: the word is valid for the call, and the time is null or valid.
    let result = unsafe { crate::syscall::call(libc::SYS_futex, args) };
    result != -(libc::ETIMEDOUT as isize)
}

/// Wakes those of the waiters `set` that sleep on `word`, which processes share.
pub fn wake_shared(word: &AtomicU32, set: u32) {
    let all = i32::MAX as usize;
    let args = [word.as_ptr() as usize, libc::FUTEX_WAKE_BITSET as usize, all, 0, 0, set as usize];
    // SAFETY: the address is only a key for the kernel.
    unsafe { crate::syscall::call(libc::SYS_futex, args) };
}

/// Converts `ns` to the kernel's form.
pub(crate) fn timespec(ns: Ns) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns.0 / 1_000_000_000).min(i64::MAX as u64) as i64,
        tv_nsec: (ns.0 % 1_000_000_000) as i64,
    }
}
