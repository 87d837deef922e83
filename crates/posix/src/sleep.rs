//! Sleeping and yielding.

use crate::cancel;
use crate::clock;
use crate::errno;
use crate::real::real;
use crate::report;
use crate::sys::syscall;
use crate::thread::Thread;
use crate::wait::Attend;
use heddle_core::Ns;
use heddle_rt::raw::{self, Caller, RawTask};
use libc::{clockid_t, timespec};
use std::ffi::{c_int, c_uint};

/// Sleeps until `deadline`, in a task, unless something is asked of it first. Returns false in that case.
fn until(deadline: Ns) -> bool {
    let task = RawTask::current().expect("the caller is a task");
    let thread = Thread::of(task);
    let slept = loop {
        if heddle_sys::clock::now() >= deadline {
            break true;
        }
        if thread.is_some_and(|thread| thread.must_attend(Attend::Cancel)) {
            break false;
        }
        raw::park(Some(deadline));
    };
    report::after_wait(task);
    slept
}

/// `clock_nanosleep` in a task. Returns the error number.
///
/// # Safety
/// `time` is valid; `rest` is null or writable.
unsafe fn sleep_in_task(
    clock: clockid_t,
    flags: c_int,
    time: &timespec,
    rest: *mut timespec,
) -> c_int {
    cancel::point();
    let is_absolute = flags & libc::TIMER_ABSTIME != 0;
    let deadline = match is_absolute {
        true => clock::deadline(clock, time),
        false => clock::span(time)
            .map(|span| Ns(heddle_sys::clock::now().0.saturating_add(span.0)))
            .ok_or(libc::EINVAL),
    };
    let deadline = match deadline {
        Ok(deadline) => deadline,
        Err(error) => return error,
    };
    if deadline <= heddle_sys::clock::now() {
        // Loops that wait for others sleep for no time. A thread that is late must catch up.
        if !is_absolute {
            heddle_rt::yield_now();
        }
        return 0;
    }
    while !until(deadline) {
        if cancel::attend(Attend::Cancel).has_run() {
            if !is_absolute && !rest.is_null() {
                let left = deadline.0.saturating_sub(heddle_sys::clock::now().0);
                // SAFETY: the caller's memory.
                unsafe { rest.write(clock::timespec(Ns(left))) };
            }
            return libc::EINTR;
        }
    }
    0
}

/// Returns whether tasks can sleep by `clock`.
fn is_known(clock: clockid_t) -> bool {
    matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC)
}

/// POSIX's `clock_nanosleep`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    rest: *mut timespec,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        match Caller::here() {
            Caller::Task if is_known(clock) && !time.is_null() => {
                sleep_in_task(clock, flags, &*time, rest)
            }
            Caller::Task => {
                let sleep = || syscall!(libc::SYS_clock_nanosleep, clock, flags, time, rest);
                -heddle_rt::blocking(sleep) as c_int
            }
            _ => real!(clock_nanosleep(
                clock: clockid_t,
                flags: c_int,
                time: *const timespec,
                rest: *mut timespec,
            ) -> c_int),
        }
    }
}

/// POSIX's `nanosleep`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn nanosleep(time: *const timespec, rest: *mut timespec) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        if Caller::here() != Caller::Task {
            return real!(nanosleep(time: *const timespec, rest: *mut timespec) -> c_int);
        }
        if time.is_null() {
            return errno::fail(libc::EFAULT);
        }
        match sleep_in_task(libc::CLOCK_MONOTONIC, 0, &*time, rest) {
            0 => 0,
            error => errno::fail(error),
        }
    }
}

/// POSIX's `usleep`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn usleep(micros: c_uint) -> c_int {
    let time = clock::timespec(Ns::from_us(micros.into()));
    // SAFETY: a valid time.
    unsafe { nanosleep(&time, std::ptr::null_mut()) }
}

/// POSIX's `sleep`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sleep(seconds: c_uint) -> c_uint {
    let mut time = clock::timespec(Ns::from_secs(seconds.into()));
    let at = &raw mut time;
    // SAFETY: a valid time, which receives the rest.
    match unsafe { nanosleep(at, at) } {
        0 => 0,
        _ => time.tv_sec as c_uint,
    }
}

/// C11's `thrd_sleep`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn thrd_sleep(time: *const timespec, rest: *mut timespec) -> c_int {
    // SAFETY: the caller's contract.
    match unsafe { clock_nanosleep(libc::CLOCK_REALTIME, 0, time, rest) } {
        0 => 0,
        libc::EINTR => -1,
        _ => -2,
    }
}

/// POSIX's `sched_yield`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn sched_yield() -> c_int {
    if Caller::here() == Caller::Task {
        heddle_rt::yield_now();
        cancel::look();
    } else {
        // SAFETY: no arguments.
        unsafe { syscall!(libc::SYS_sched_yield) };
    }
    0
}

/// glibc's `pthread_yield`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pthread_yield() -> c_int {
    sched_yield()
}

/// C11's `thrd_yield`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn thrd_yield() {
    sched_yield();
}
