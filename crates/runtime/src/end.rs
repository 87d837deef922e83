//! The end of a thread.

use crate::preempt::NoPreempt;
use crate::switch::leave_for_good;
use crate::task::Task;
use crate::tls::{dtors, image::Images};
use heddle_arch::PreemptCount;
use std::panic::{self, AssertUnwindSafe};

/// Ends the calling thread, whose closure has returned.
pub(crate) fn end_thread(task: &'static Task) -> ! {
    // Libraries take locks in their destructors, which the next task's destructors need, too. Unlike `no_preempt`,
    // this does not check the clock at the end: the task is about to leave anyway.
    let held = NoPreempt::new();
    dtors::run(task);
    drop(held);
    // SAFETY: a task runs on a worker. Never enabled again: the task does not come back.
    unsafe { PreemptCount::disable() };
    // A policy that panics there is named while the panic unwinds, which requires a handler that catches it.
    let _ = panic::catch_unwind(AssertUnwindSafe(|| end(task)));
    std::process::abort()
}

/// Ends the calling task, which has nothing left to do.
fn end(task: &'static Task) -> ! {
    let fs = task.fs;
    let sched = task.sched();
    // From here on no signal handler takes this context for a task.
    Task::leave_current();
    // SAFETY: destructors have run, and from here to the switch nothing uses thread-local variables: `exit` works on
    // the worker, which hangs off GS.
    unsafe { Images::restore(fs) };
    leave_for_good(sched.exit(task))
}
