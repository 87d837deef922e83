//! Masks: `pthread_sigmask` and its relatives.

use super::actions::{SIGNALS, set_of, store_set};
use super::{Set, change_own_mask, deliver, fetch, own_mask, receiver};
use crate::errno;
use crate::real::real;
use crate::sys::syscall;
use crate::thread::Thread;
use heddle_rt::raw::Caller;
use heddle_sys::signal::{bit, change_mask};
use libc::sigset_t;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::Ordering;

/// Changes the calling thread's mask; `how` is valid. Returns the previous one. What becomes acceptable is handled.
pub(super) fn change(how: c_int, set: Set) -> Set {
    let Some(thread) = Thread::current() else { return change_mask(how, set) };
    let old = thread.signals.mask.load(Ordering::Relaxed);
    let new = match how {
        libc::SIG_BLOCK => old | set,
        libc::SIG_UNBLOCK => old & !set,
        _ => set,
    };
    adopt(thread, new);
    old
}

/// Gives the calling task the mask `new`, and runs the handlers of what becomes acceptable.
pub(super) fn adopt(thread: &'static Thread, new: Set) {
    let old = thread.signals.mask.load(Ordering::Relaxed);
    let opened = change_own_mask(thread, new);
    if new & !old != 0 {
        receiver::closed(new & !old);
    }
    if opened == 0 {
        return;
    }
    let may_run = Caller::here() == Caller::Task;
    if may_run {
        // What is pending for the process comes first, and whole.
        fetch(thread, opened);
    }
    receiver::opened(opened);
    if may_run && thread.signals.pending.load(Ordering::Relaxed) & !new != 0 {
        deliver(thread, ptr::null_mut());
    }
}

/// POSIX's `pthread_sigmask`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    if Thread::current().is_none() || Caller::here() == Caller::Runtime {
        // SAFETY: the caller's contract.
        return unsafe {
            real!(pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int)
        };
    }
    // SAFETY: null or the caller's set.
    let set = unsafe { set.as_ref() }.map(set_of);
    let before = match set {
        Some(_) if !matches!(how, libc::SIG_BLOCK | libc::SIG_UNBLOCK | libc::SIG_SETMASK) => {
            return libc::EINVAL;
        }
        Some(set) => {
            let before = own_mask();
            // The answer is there before a handler runs.
            // SAFETY: null or the caller's memory.
            unsafe { answer(old, before) };
            change(how, set);
            return 0;
        }
        None => own_mask(),
    };
    // SAFETY: as above.
    unsafe { answer(old, before) };
    0
}

unsafe fn answer(to: *mut sigset_t, mask: Set) {
    // SAFETY: the caller's memory, which may be uninitialised.
    unsafe {
        if !to.is_null() {
            to.write(std::mem::zeroed());
            store_set(&mut *to, mask);
        }
    }
}

/// POSIX's `sigprocmask`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    // SAFETY: the caller's contract.
    match unsafe { pthread_sigmask(how, set, old) } {
        0 => 0,
        error => errno::fail(error),
    }
}

/// POSIX's `sigpending`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigpending(set: *mut sigset_t) -> c_int {
    let mut pending: Set = 0;
    // SAFETY: a valid result.
    let result = unsafe { syscall!(libc::SYS_rt_sigpending, &raw mut pending, 8) };
    if result < 0 {
        return errno::of_kernel(result) as c_int;
    }
    if let Some(thread) = Thread::current() {
        let state = &thread.signals;
        pending |= state.pending.load(Ordering::SeqCst);
        pending &= state.mask.load(Ordering::Relaxed);
    }
    // SAFETY: the caller's memory.
    unsafe { answer(set, pending) };
    0
}

/// Applies an old interface, which knows the first 32 signals only.
fn change_old(how: c_int, mask: c_int) -> c_int {
    change(how, Set::from(mask as u32)) as c_int
}

/// BSD's `sigblock`.
#[unsafe(no_mangle)]
pub extern "C" fn sigblock(mask: c_int) -> c_int {
    change_old(libc::SIG_BLOCK, mask)
}

/// BSD's `sigsetmask`.
#[unsafe(no_mangle)]
pub extern "C" fn sigsetmask(mask: c_int) -> c_int {
    change_old(libc::SIG_SETMASK, mask)
}

/// BSD's `siggetmask`.
#[unsafe(no_mangle)]
pub extern "C" fn siggetmask() -> c_int {
    change_old(libc::SIG_BLOCK, 0)
}

fn change_one(how: c_int, signal: c_int) -> c_int {
    if !(1..=SIGNALS).contains(&signal) {
        return errno::fail(libc::EINVAL);
    }
    change(how, bit(signal));
    0
}

/// POSIX's `sighold`.
#[unsafe(no_mangle)]
pub extern "C" fn sighold(signal: c_int) -> c_int {
    change_one(libc::SIG_BLOCK, signal)
}

/// POSIX's `sigrelse`.
#[unsafe(no_mangle)]
pub extern "C" fn sigrelse(signal: c_int) -> c_int {
    change_one(libc::SIG_UNBLOCK, signal)
}
