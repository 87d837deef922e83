//! Joining and detaching.

use super::registry::Registry;
use super::{Life, Thread};
use crate::real::real;
use crate::wait::Attend;
use crate::{cancel, clock};
use heddle_core::Ns;
use heddle_rt::raw::{self, Caller, JoinLimit};
use libc::{pthread_t, timespec};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

/// How long a join may last.
struct Patience {
    deadline: Option<Ns>,
}

impl JoinLimit for Patience {
    fn park(&self) -> bool {
        let thread = Thread::current();
        if thread.is_some_and(|thread| thread.must_attend(Attend::Cancel))
            || self.deadline.is_some_and(|at| at <= heddle_sys::clock::now())
        {
            return false;
        }
        raw::park(self.deadline);
        true
    }
}

/// Waits for the end of `thread` until `deadline` and stores what it returned.
///
/// # Errors
/// ESRCH, EDEADLK, EINVAL (detached, or another thread joins it), ETIMEDOUT, EBUSY (if it may not wait).
unsafe fn join(
    thread: pthread_t,
    value: *mut *mut c_void,
    deadline: Option<Ns>,
    may_wait: bool,
) -> Result<(), c_int> {
    let record = Thread::find(thread).ok_or(libc::ESRCH)?;
    if Thread::current().is_some_and(|own| ptr::eq(own, record)) {
        return Err(libc::EDEADLK);
    }
    if !may_wait && !record.task.has_ended() && record.life() == Life::Joinable as u8 {
        return Err(libc::EBUSY);
    }
    if !record.change_life(Life::Joinable, Life::Joining) {
        return Err(libc::EINVAL);
    }
    let limit = Patience { deadline };
    while !record.task.join(&limit) {
        let is_over = deadline.is_some_and(|at| at <= heddle_sys::clock::now());
        if is_over || cancel::is_requested() {
            record.life.store(Life::Joinable as u8, Ordering::Release);
        }
        if is_over && !cancel::is_requested() {
            return Err(libc::ETIMEDOUT);
        }
        // Returns after a signal's handler; does not return from a cancellation.
        cancel::attend(Attend::Cancel);
    }
    if !value.is_null() {
        // SAFETY: the caller's memory.
        unsafe { value.write(record.result.load(Ordering::Acquire)) };
    }
    record.life.store(Life::None as u8, Ordering::Release);
    record.task.recycle();
    Ok(())
}

/// Returns whether `thread` is, or was, a task of ours. A kernel thread is the C library's, and so is the end of the
/// first thread.
fn is_ours(thread: pthread_t) -> bool {
    Registry::get().find(thread as usize).is_some_and(|record| !record.is_first())
}

/// Converts to an error number.
fn number(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

/// Waits in a task for the end of a kernel thread, of which nothing tells us: looks every now and then.
///
/// # Safety
/// POSIX's contract of `pthread_join`.
unsafe fn join_foreign(thread: pthread_t, value: *mut *mut c_void) -> c_int {
    // SAFETY: returns the caller's own.
    if thread == unsafe { libc::pthread_self() } {
        return libc::EDEADLK;
    }
    let mut pause = Ns::from_us(50);
    loop {
        cancel::point();
        // SAFETY: the caller's contract.
        let error = unsafe {
            real!(pthread_tryjoin_np(thread: pthread_t, value: *mut *mut c_void) -> c_int)
        };
        if error != libc::EBUSY {
            return error;
        }
        raw::park(Some(Ns(heddle_sys::clock::now().0.saturating_add(pause.0))));
        pause = (pause * 2).min(Ns::from_ms(2));
    }
}

/// POSIX's `pthread_join`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_join(thread: pthread_t, value: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if !is_ours(thread) {
            return match Caller::here() {
                Caller::Task => join_foreign(thread, value),
                _ => real!(pthread_join(thread: pthread_t, value: *mut *mut c_void) -> c_int),
            };
        }
        cancel::point();
        number(join(thread, value, None, true))
    }
}

/// glibc's `pthread_tryjoin_np`.
///
/// # Safety
/// glibc's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_tryjoin_np(
    thread: pthread_t,
    value: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if !is_ours(thread) {
            return real!(pthread_tryjoin_np(thread: pthread_t, value: *mut *mut c_void) -> c_int);
        }
        number(join(thread, value, None, false))
    }
}

/// glibc's `pthread_clockjoin_np`.
///
/// # Safety
/// glibc's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_clockjoin_np(
    thread: pthread_t,
    value: *mut *mut c_void,
    clock: libc::clockid_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if !is_ours(thread) {
            return real!(pthread_clockjoin_np(
                thread: pthread_t,
                value: *mut *mut c_void,
                clock: libc::clockid_t,
                time: *const timespec,
            ) -> c_int);
        }
        cancel::point();
        let deadline = match time.as_ref().map(|time| clock::deadline(clock, time)).transpose() {
            Ok(deadline) => deadline,
            Err(error) => return error,
        };
        number(join(thread, value, deadline, true))
    }
}

/// glibc's `pthread_timedjoin_np`.
///
/// # Safety
/// glibc's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_timedjoin_np(
    thread: pthread_t,
    value: *mut *mut c_void,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { pthread_clockjoin_np(thread, value, libc::CLOCK_REALTIME, time) }
}

/// POSIX's `pthread_detach`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_detach(thread: pthread_t) -> c_int {
    if !is_ours(thread) {
        // SAFETY: the caller's contract.
        return unsafe { real!(pthread_detach(thread: pthread_t) -> c_int) };
    }
    let Some(record) = Thread::find(thread) else { return libc::ESRCH };
    if !record.change_life(Life::Joinable, Life::Detached) {
        return libc::EINVAL;
    }
    record.task.detach();
    0
}
