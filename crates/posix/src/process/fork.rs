//! Forks. The child has the calling thread only, as a kernel thread; its first `pthread_create` starts a new runtime.

use crate::real::real;
use crate::thread::Thread;
use crate::{ALLOCATOR, cancel, mutex, report, signals, start, thread, wait};
use heddle_rt::raw;
use heddle_sys::signal::change_mask;
use libc::pid_t;
use std::cell::Cell;

/// What the thread that forks must restore. Used while it holds the locks.
struct Saved {
    thread: Cell<Option<&'static Thread>>,
    mask: Cell<u64>,
}
// SAFETY: as said there.
unsafe impl Sync for Saved {}
static SAVED: Saved = Saved { thread: Cell::new(None), mask: Cell::new(0) };

/// Registers the handlers of forks: before the program's, so that ours run next to the fork itself.
pub(crate) fn register() {
    // SAFETY: the handlers belong together, and do what they must in each of the three places.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

extern "C" fn before() {
    let thread = Thread::current();
    // Nothing may run on this thread until the child is complete.
    let mask = change_mask(libc::SIG_SETMASK, !0);
    raw::before_fork();
    signals::before_fork();
    ALLOCATOR.before_fork();
    SAVED.thread.set(thread);
    SAVED.mask.set(mask);
}

extern "C" fn in_parent() {
    let mask = SAVED.mask.get();
    ALLOCATOR.after_fork();
    signals::end_fork();
    raw::end_fork();
    change_mask(libc::SIG_SETMASK, mask);
}

extern "C" fn in_child() {
    ALLOCATOR.after_fork();
    // SAFETY: `before` has prepared this, and no other thread exists in the child.
    unsafe {
        raw::after_fork();
        wait::forget();
        crate::io::forget();
    }
    let own = signals::after_fork(SAVED.thread.get());
    if let Some(first) = SAVED.thread.get().filter(|thread| thread.is_first()) {
        mutex::give_robust_back(first);
        cancel::give_state_back(first);
    }
    signals::end_fork();
    mutex::forget_tid();
    thread::forget_all();
    start::forget();
    report::forget();
    change_mask(libc::SIG_SETMASK, own.unwrap_or(SAVED.mask.get()));
}

/// POSIX's `vfork`: a fork. Its child would run on the parent's worker otherwise.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> pid_t {
    // SAFETY: the caller's contract.
    unsafe { _Fork() }
}

/// POSIX's `_Fork`: without the program's handlers.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> pid_t {
    before();
    // SAFETY: a system call without a stack of its own: the child goes on from here. The C library's function sets up
    // the descriptor of the child's thread.
    let child = unsafe { real!(_Fork() -> pid_t) };
    match child {
        0 => in_child(),
        _ => in_parent(),
    }
    child
}
