//! Waiting for the ends of child processes.

use crate::cancel::{self, Attended};
use crate::errno;
use crate::real::real;
use crate::sys::syscall;
use crate::thread::Thread;
use crate::wait::Attend;
use heddle_rt::raw::Caller;
use libc::{FILE, id_t, idtype_t, pid_t, rusage, siginfo_t};
use std::ffi::{c_int, c_void};
use std::ptr;

fn is_task() -> bool {
    Thread::current().is_some() && Caller::here() == Caller::Task
}

/// Calls `wait` with additional options: at first without blocking, then with the CPU given to others. `is_there` says
/// whether the first call has found anything.
fn patiently(
    may_block: bool,
    mut wait: impl FnMut(c_int) -> isize,
    is_there: impl Fn(isize) -> bool,
) -> isize {
    cancel::point();
    if !may_block {
        return errno::of_kernel(wait(0));
    }
    loop {
        let found = wait(libc::WNOHANG);
        if is_there(found) {
            return errno::of_kernel(found);
        }
        let found = heddle_rt::blocking(|| wait(0));
        if found != -(libc::EINTR as isize) {
            return errno::of_kernel(found);
        }
        if cancel::attend(Attend::Cancel) == Attended::Interrupt {
            return errno::of_kernel(found);
        }
    }
}

/// BSD's `wait4`.
///
/// # Safety
/// BSD's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn wait4(
    child: pid_t,
    status: *mut c_int,
    options: c_int,
    usage: *mut rusage,
) -> pid_t {
    if !is_task() {
        // SAFETY: the caller's contract.
        return unsafe {
            real!(wait4(
                child: pid_t,
                status: *mut c_int,
                options: c_int,
                usage: *mut rusage,
            ) -> pid_t)
        };
    }
    // SAFETY: the caller's contract.
    let wait = |more| unsafe { syscall!(libc::SYS_wait4, child, status, options | more, usage) };
    patiently(options & libc::WNOHANG == 0, wait, |found| found != 0) as pid_t
}

/// POSIX's `waitpid`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn waitpid(child: pid_t, status: *mut c_int, options: c_int) -> pid_t {
    // SAFETY: the caller's contract.
    unsafe { wait4(child, status, options, ptr::null_mut()) }
}

/// glibc's other name of `waitpid`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __waitpid(
    child: pid_t,
    status: *mut c_int,
    options: c_int,
) -> pid_t {
    // SAFETY: the caller's contract.
    unsafe { wait4(child, status, options, ptr::null_mut()) }
}

/// POSIX's `wait`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn wait(status: *mut c_int) -> pid_t {
    // SAFETY: the caller's contract.
    unsafe { wait4(-1, status, 0, ptr::null_mut()) }
}

/// BSD's `wait3`.
///
/// # Safety
/// BSD's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn wait3(
    status: *mut c_int,
    options: c_int,
    usage: *mut rusage,
) -> pid_t {
    // SAFETY: the caller's contract.
    unsafe { wait4(-1, status, options, usage) }
}

/// POSIX's `waitid`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn waitid(
    kind: idtype_t,
    id: id_t,
    info: *mut siginfo_t,
    options: c_int,
) -> c_int {
    if !is_task() {
        // SAFETY: the caller's contract.
        return unsafe {
            real!(waitid(
                kind: idtype_t,
                id: id_t,
                info: *mut siginfo_t,
                options: c_int,
            ) -> c_int)
        };
    }
    // SAFETY: all-zero is room for a description.
    let mut own: siginfo_t = unsafe { std::mem::zeroed() };
    let at = if info.is_null() { &raw mut own } else { info };
    // SAFETY: the caller's contract; a call that found nothing has zeroed the description.
    let (wait, is_there) = unsafe {
        (
            |more| syscall!(libc::SYS_waitid, kind, id, at, options | more, 0),
            |result| result != 0 || (*at).si_pid() != 0,
        )
    };
    patiently(options & libc::WNOHANG == 0, wait, is_there) as c_int
}

/// POSIX's `pclose`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclose(stream: *mut FILE) -> c_int {
    if !is_task() {
        // SAFETY: the caller's contract.
        return unsafe { real!(pclose(stream: *mut FILE) -> c_int) };
    }
    let stream = stream.cast::<c_void>();
    // SAFETY: the caller's contract.
    heddle_rt::blocking(|| unsafe { real!(pclose(stream: *mut c_void) -> c_int) })
}
