//! Queues and semaphores of System V, and terminals: in the kernel.

use super::block::in_kernel;
use super::points;
use crate::sys::syscall;
use heddle_rt::raw::Caller;
use libc::{sembuf, timespec};
use std::ffi::{c_int, c_long, c_void};
use std::ptr;

/// Makes `call` with flags that forbid it to wait, and then, if it would, in the kernel.
fn queue(flags: c_int, call: impl Fn(c_int) -> isize) -> isize {
    const ENOMSG: isize = -(libc::ENOMSG as isize);
    match call(flags | libc::IPC_NOWAIT) {
        super::EAGAIN | ENOMSG if flags & libc::IPC_NOWAIT == 0 => in_kernel(|| call(flags)),
        result => result,
    }
}

points! {
    msgsnd(queue_id: c_int, message: *const c_void, size: usize, flags: c_int) -> c_int {
        // SAFETY: the caller's memory.
        queue(flags, |flags| unsafe { syscall!(libc::SYS_msgsnd, queue_id, message, size, flags) })
    }
    msgrcv(
        queue_id: c_int,
        message: *mut c_void,
        size: usize,
        kind: c_long,
        flags: c_int,
    ) -> isize {
        // SAFETY: the caller's memory.
        queue(flags, |flags| unsafe {
            syscall!(libc::SYS_msgrcv, queue_id, message, size, kind, flags)
        })
    }
    tcdrain(fd: c_int) -> c_int {
        // SAFETY: no memory.
        in_kernel(|| unsafe { syscall!(libc::SYS_ioctl, fd, libc::TCSBRK, 1) })
    }
}

/// Linux's `semop`. Not a cancellation point.
///
/// # Safety
/// Linux's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn semop(id: c_int, operations: *mut sembuf, count: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { semtimedop(id, operations, count, ptr::null()) }
}

/// Linux's `semtimedop`. Not a cancellation point.
///
/// # Safety
/// Linux's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn semtimedop(
    id: c_int,
    operations: *mut sembuf,
    count: usize,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract.
    let call = |limit: *const timespec| unsafe {
        syscall!(libc::SYS_semtimedop, id, operations, count, limit)
    };
    if Caller::here() != Caller::Task {
        return crate::errno::of_kernel(call(limit)) as c_int;
    }
    let zero = crate::clock::timespec(heddle_core::Ns::ZERO);
    // Operations that may not wait return EAGAIN in either form.
    let result = match call(&raw const zero) {
        super::EAGAIN => heddle_rt::blocking(|| call(limit)),
        result => result,
    };
    super::done(result) as c_int
}
