//! Cancellation, and what else other threads ask of a thread.
//!
//! A request is a flag of the thread's record. A thread looks at it at each cancellation point, when it is woken, and,
//! if it has asked to be cancelled asynchronously, when it is interrupted. It then leaves as by `pthread_exit`.

use crate::real::real;
use crate::signals;
use crate::thread::{self, Thread};
use crate::wait::{self, Attend};
use heddle_rt::raw::Caller;
use libc::pthread_t;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

/// What a cancelled thread returns.
const CANCELED: *mut c_void = usize::MAX as *mut c_void;

const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_DEFERRED: c_int = 0;
const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

/// Returns whether the calling thread, a task, is to be cancelled at a cancellation point.
pub(crate) fn is_requested() -> bool {
    Thread::current().is_some_and(|thread| {
        thread.is_asked(Thread::CANCEL) && thread.cancel_enabled.load(Ordering::Relaxed)
    })
}

/// A cancellation point: does not return if the calling thread is to be cancelled.
#[inline]
pub(crate) fn point() {
    match Thread::current() {
        Some(thread) if thread.must_attend(Attend::Cancel) => drop(attend(Attend::Cancel)),
        Some(_) => {}
        // SAFETY: the function has this type; the caller's frames may be left.
        None => unsafe { real!(pthread_testcancel() -> ()) },
    }
}

/// Runs the handlers of signals that wait for the calling task: for loops that neither wait nor end.
#[inline]
pub(crate) fn look() {
    if Thread::current().is_some_and(|thread| thread.must_attend(Attend::Signals)) {
        attend(Attend::Signals);
    }
}

/// What [`attend`] did.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attended {
    /// No handler ran.
    Nothing,
    /// A handler ran that lets interrupted calls go on.
    Restart,
    /// A handler ran that makes interrupted calls return EINTR.
    Interrupt,
}

impl Attended {
    /// Returns whether a handler ran: calls that are never restarted return EINTR.
    pub(crate) fn has_run(self) -> bool {
        self != Attended::Nothing
    }
}

/// Does what other threads have asked of the calling thread: runs signal handlers. Does not return if it is cancelled.
#[cold]
pub(crate) fn attend(to: Attend) -> Attended {
    let Some(thread) = Thread::current() else {
        if to == Attend::Cancel {
            // SAFETY: as above.
            unsafe { real!(pthread_testcancel() -> ()) };
        }
        return signals::attended_in_kernel();
    };
    if Caller::here() != Caller::Task {
        return Attended::Nothing;
    }
    let attended = match thread.is_asked(Thread::SIGNAL) {
        true => signals::attend(thread),
        false => Attended::Nothing,
    };
    let at_once = thread.cancel_async.load(Ordering::Relaxed);
    if (to == Attend::Cancel || at_once) && is_requested() {
        thread.take(Thread::CANCEL);
        thread::exit(CANCELED);
    }
    attended
}

/// Gives `thread`, which the calling kernel thread becomes, what the C library has for that: whether and when it is
/// cancelled.
pub(crate) fn take_state(thread: &Thread) {
    let (mut state, mut kind) = (PTHREAD_CANCEL_ENABLE, PTHREAD_CANCEL_DEFERRED);
    // SAFETY: the functions have these types, and room for what was set before. The state is disabled first, and then
    // the type made deferred: nothing is acted upon.
    unsafe {
        let (off, deferred) = (PTHREAD_CANCEL_DISABLE, PTHREAD_CANCEL_DEFERRED);
        let (state, kind) = (&raw mut state, &raw mut kind);
        real!(pthread_setcancelstate(off: c_int, state: *mut c_int) -> c_int);
        real!(pthread_setcanceltype(deferred: c_int, kind: *mut c_int) -> c_int);
    }
    thread.cancel_enabled.store(state == PTHREAD_CANCEL_ENABLE, Ordering::Relaxed);
    thread.cancel_async.store(kind == PTHREAD_CANCEL_ASYNCHRONOUS, Ordering::Relaxed);
}

/// Undoes [`take_state`], in the kernel thread.
pub(crate) fn give_state_back(thread: &Thread) {
    let state = match thread.cancel_enabled.load(Ordering::Relaxed) {
        true => PTHREAD_CANCEL_ENABLE,
        false => PTHREAD_CANCEL_DISABLE,
    };
    let kind = c_int::from(thread.cancel_async.load(Ordering::Relaxed));
    let old: *mut c_int = std::ptr::null_mut();
    // SAFETY: the functions have these types, and take null.
    unsafe {
        real!(pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int);
        real!(pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int);
    }
}

/// POSIX's `pthread_cancel`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cancel(thread: pthread_t) -> c_int {
    let Some(record) = Thread::find(thread) else {
        // SAFETY: the caller's contract.
        let result = unsafe { real!(pthread_cancel(thread: pthread_t) -> c_int) };
        wait::disturb(thread);
        return result;
    };
    if !record.task.has_ended() {
        record.ask(Thread::CANCEL);
    }
    if record.cancel_async.load(Ordering::Relaxed)
        && Thread::current().is_some_and(|own| std::ptr::eq(own, record))
    {
        point();
    }
    0
}

/// POSIX's `pthread_testcancel`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pthread_testcancel() {
    point();
}

/// POSIX's `pthread_setcancelstate`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int {
    let Some(thread) = Thread::current() else {
        // SAFETY: the caller's contract.
        return unsafe { real!(pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int) };
    };
    if !matches!(state, PTHREAD_CANCEL_ENABLE | PTHREAD_CANCEL_DISABLE) {
        return libc::EINVAL;
    }
    let enable = state == PTHREAD_CANCEL_ENABLE;
    let was = thread.cancel_enabled.swap(enable, Ordering::Relaxed);
    if !old.is_null() {
        // SAFETY: the caller's memory.
        unsafe { old.write(if was { PTHREAD_CANCEL_ENABLE } else { PTHREAD_CANCEL_DISABLE }) };
    }
    if enable && thread.cancel_async.load(Ordering::Relaxed) {
        point();
    }
    0
}

/// POSIX's `pthread_setcanceltype`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
    let Some(thread) = Thread::current() else {
        // SAFETY: the caller's contract.
        return unsafe { real!(pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int) };
    };
    if !matches!(kind, PTHREAD_CANCEL_DEFERRED | PTHREAD_CANCEL_ASYNCHRONOUS) {
        return libc::EINVAL;
    }
    let at_once = kind == PTHREAD_CANCEL_ASYNCHRONOUS;
    let was = thread.cancel_async.swap(at_once, Ordering::Relaxed);
    if !old.is_null() {
        // SAFETY: the caller's memory; 0 is DEFERRED, 1 ASYNCHRONOUS.
        unsafe { old.write(c_int::from(was)) };
    }
    if at_once {
        point();
    }
    0
}
