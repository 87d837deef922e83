//! `pthread_once`: the C library's, with waiting as a task.
//!
//! The C library runs the routine, whether it returns, throws or is cancelled, and keeps the state in the program's
//! object. A caller that finds the routine running waits in the queue of the object's address. The end wakes it, except
//! one by unwinding, which passes no code of this library: so a waiter also looks by itself, and soon leaves the wait
//! to the C library, which knows besides if the routine was running in the parent of a fork.

use crate::cancel;
use crate::real::real;
use crate::wait::{self, Attend, For, Limit, Outcome};
use heddle_core::Ns;
use heddle_rt::raw::Caller;
use heddle_sys::clock;
use libc::pthread_once_t;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering, fence};

/// A state of glibc's: the routine runs. Above these bits are the forks so far.
const RUNNING: c_int = 1;
/// A state of glibc's: the routine has run.
const DONE: c_int = 2;

/// How long a waiter does not look by itself, and how often it does.
const LOOK_AFTER: Ns = Ns::from_us(500);
const LOOKS: u32 = 8;

type Routine = extern "C-unwind" fn();

/// POSIX's `pthread_once`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_once(
    control: *mut pthread_once_t,
    routine: Routine,
) -> c_int {
    // SAFETY: the caller's object, which is an integer of glibc's.
    let state = unsafe { &*control.cast::<AtomicI32>() };
    if state.load(Ordering::Acquire) & DONE != 0 {
        return 0;
    }
    if Caller::here() == Caller::Task {
        await_end(state);
    }
    // SAFETY: the caller's contract. It may unwind: nothing is owned.
    let result =
        unsafe { real!(pthread_once(control: *mut pthread_once_t, routine: Routine) -> c_int) };
    // As if the C library had ended by a read-modify-write operation, which `wake` needs. The object may be gone.
    fence(Ordering::SeqCst);
    wait::wake(control as usize, usize::MAX, u32::MAX);
    result
}

/// C11's `call_once`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn call_once(flag: *mut pthread_once_t, routine: Routine) {
    // SAFETY: the caller's contract; glibc's types are the same.
    unsafe { pthread_once(flag, routine) };
}

/// Waits while another thread runs the routine, but not for long.
fn await_end(state: &AtomicI32) {
    let is_running = || state.load(Ordering::SeqCst) & RUNNING != 0;
    for _ in 0..LOOKS {
        if !is_running() {
            return;
        }
        let deadline = Some(clock::now() + LOOK_AFTER);
        let limit = Limit { deadline, attend: Attend::Signals };
        if wait::wait(state.as_ptr() as usize, u32::MAX, For::Event, limit, is_running)
            == Outcome::Interrupted
        {
            let _ = cancel::attend(Attend::Signals);
        }
    }
}
