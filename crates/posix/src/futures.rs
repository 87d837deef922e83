//! Tasks of async runtimes that give their scheduling away, as tokio does if `heddle cargo --tokio` has built it.
//!
//! The table below is found by its name, with `dlsym`; its layout is part of what that tokio was built with.

use crate::start;
use heddle_rt::raw::{self, ForeignTask, NoPreempt, PollFn};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

/// The functions of [`heddle_async`].
#[repr(C)]
pub struct Table {
    /// 1. A reader refuses others.
    version: u32,
    /// Creates a task that calls the function on the address for each wake; see [`ForeignTask::create`]. Null without
    /// memory.
    create: extern "C" fn(PollFn, *mut c_void) -> *mut c_void,
    /// Wakes the task: 1 if it asks to yield.
    wake: extern "C" fn(*mut c_void, i32),
    /// Drops the creator's reference.
    release: extern "C" fn(*mut c_void),
    /// Holds preemption off in the caller, until as many calls of the next.
    no_preempt_begin: extern "C" fn(),
    no_preempt_end: extern "C" fn(),
}

/// Where the async runtimes of the process find Heddle.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static heddle_async: Table =
    Table { version: 1, create, wake, release, no_preempt_begin, no_preempt_end };

extern "C" fn create(poll: PollFn, data: *mut c_void) -> *mut c_void {
    start::runtime();
    ForeignTask::create(poll, data).map_or(ptr::null_mut(), |task| task.address().as_ptr())
}

extern "C" fn wake(task: *mut c_void, by_itself: i32) {
    // SAFETY: the caller holds the reference of `create`.
    unsafe { task_at(task) }.wake(by_itself != 0);
}

extern "C" fn release(task: *mut c_void) {
    // SAFETY: the caller gives up the reference of `create`.
    unsafe { task_at(task) }.release();
}

/// # Safety
/// `create` has returned it, and it has not been released.
unsafe fn task_at(task: *mut c_void) -> ForeignTask {
    // SAFETY: by the caller's promise.
    unsafe { ForeignTask::from_address(NonNull::new_unchecked(task)) }
}

extern "C" fn no_preempt_begin() {
    let _held = ManuallyDrop::new(NoPreempt::new());
}

extern "C" fn no_preempt_end() {
    raw::end_no_preempt();
}
