//! The CPU clocks of threads.
//!
//! To the kernel, `CLOCK_THREAD_CPUTIME_ID` is the worker's clock, which other tasks advance, and which is another's
//! after the next wait. In a task it is the time that the task has run, on whichever workers. It is kept from the first
//! question of the process on ([`heddle_rt::raw::RawTask::cpu_time`]): before that all tasks' clocks stand at zero.

use crate::clock::timespec;
use crate::errno;
use crate::real::real;
use crate::thread::Thread;
use heddle_core::Ns;
use libc::{clockid_t, pthread_t, rusage};
use std::ffi::c_int;

/// The lower bits of the clock of a kernel thread: "per thread" and "scheduled time". The others are its inverted
/// number.
const OF_THREAD: clockid_t = 6;
const KIND: clockid_t = 7;

/// From here on the number is a record's place, counted from the oldest: a thread has no number of its own before it
/// has begun. The kernel knows no such thread, and refuses the clock.
const PLACES: u32 = 1 << 27;

/// Returns the clock of `thread`.
fn clock_of(thread: &Thread) -> clockid_t {
    let newer = Thread::all().take_while(|other| !std::ptr::eq(*other, thread)).count();
    let place = Thread::all().count() - 1 - newer;
    (!((PLACES + place as u32) as clockid_t) << 3) | OF_THREAD
}

/// Returns the task whose CPU time `clock` is.
#[inline]
fn task_of(clock: clockid_t) -> Option<&'static Thread> {
    match clock {
        libc::CLOCK_THREAD_CPUTIME_ID => Thread::current(),
        0.. => None,
        _ => find(clock),
    }
}

/// Returns the task whose place, or the number that `gettid` returns there, is in `clock`.
#[cold]
fn find(clock: clockid_t) -> Option<&'static Thread> {
    if clock & KIND != OF_THREAD {
        return None;
    }
    let number = !(clock >> 3) as u32;
    let found = match number.checked_sub(PLACES) {
        // Records made meanwhile only make it look again.
        Some(place) => loop {
            let all = Thread::all().count();
            let newer = all.checked_sub(place as usize + 1)?;
            let thread = Thread::all().nth(newer);
            if Thread::all().count() == all {
                break thread;
            }
        },
        None => Thread::all().find(|thread| thread.tid() == number),
    };
    found.filter(|thread| thread.is_alive())
}

/// POSIX's `clock_gettime`. Only the clocks of threads are ours.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: the caller's memory; the function has this type.
    unsafe {
        match task_of(clock) {
            Some(thread) => {
                time.write(timespec(thread.task.cpu_time()));
                0
            }
            None => real!(clock_gettime(clock: clockid_t, time: *mut libc::timespec) -> c_int),
        }
    }
}

/// POSIX's `clock_getres`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_getres(clock: clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: null or the caller's memory; the function has this type.
    unsafe {
        if task_of(clock).is_none() {
            return real!(clock_getres(clock: clockid_t, time: *mut libc::timespec) -> c_int);
        }
        if !time.is_null() {
            time.write(timespec(Ns(1)));
        }
        0
    }
}

/// POSIX's `pthread_getcpuclockid`: `clock_gettime` and `clock_getres` know the clock of a task, the kernel does not.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getcpuclockid(thread: pthread_t, clock: *mut clockid_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        match Thread::find(thread) {
            Some(record) if record.is_alive() => {
                clock.write(clock_of(record));
                0
            }
            Some(_) => libc::ESRCH,
            None => real!(pthread_getcpuclockid(thread: pthread_t, clock: *mut clockid_t) -> c_int),
        }
    }
}

/// Linux's `getrusage`. For RUSAGE_THREAD in a task, all the time that it has run is its own code's, and what the
/// kernel counts for workers (faults, switches) is zero.
///
/// # Safety
/// Linux's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrusage(who: c_int, usage: *mut rusage) -> c_int {
    // SAFETY: the caller's memory; the function has this type.
    unsafe {
        let thread = Thread::current().filter(|_| who == libc::RUSAGE_THREAD);
        let Some(thread) = thread else {
            return real!(getrusage(who: c_int, usage: *mut rusage) -> c_int);
        };
        if usage.is_null() {
            return errno::fail(libc::EFAULT);
        }
        let mut answer: rusage = std::mem::zeroed();
        let used = timespec(thread.task.cpu_time());
        answer.ru_utime.tv_sec = used.tv_sec;
        answer.ru_utime.tv_usec = used.tv_nsec / 1000;
        // The process's, as the kernel has it for a thread.
        let mut whole: rusage = std::mem::zeroed();
        let (who, of_all) = (libc::RUSAGE_SELF, &raw mut whole);
        real!(getrusage(who: c_int, of_all: *mut rusage) -> c_int);
        answer.ru_maxrss = whole.ru_maxrss;
        usage.write(answer);
        0
    }
}
