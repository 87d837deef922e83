//! Calls that block in the kernel.

use crate::engine::engine_of;
use crate::preempt::NoPreempt;
use crate::switch::leave_for;
use crate::task::Task;
use crate::threads;
use crate::worker::Worker;
use std::sync::atomic::Ordering;

/// Runs `f`, which may block in the kernel (files, `getaddrinfo`, a C library), without holding up other tasks: the CPU
/// is given to another worker first. The cost is about that of waking a thread, some microseconds, so use it for calls
/// that may take longer. In an ordinary thread it just runs `f`.
///
/// A call that blocks without this is noticed after a millisecond or two; only then is its CPU given away.
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    let Some(task) = Task::current() else { return f() };
    // The worker must stay ours while `f` runs: a preemption would find it without a CPU.
    let _guard = NoPreempt::new();
    give_cpu_away(task);
    let result = f();
    // SAFETY: as above; `f` may have parked and come back on a worker that has a CPU.
    if !unsafe { Worker::current() }.is_attached() {
        leave_for(task, task.sched().yield_now(task));
    }
    result
}

/// Puts another worker in charge of the CPU of `task`, the caller. Preemption is off.
pub(crate) fn give_cpu_away(task: &'static Task) {
    // SAFETY: a task with preemption off.
    let worker = unsafe { Worker::current() };
    if worker.attached.swap(false, Ordering::AcqRel) {
        worker.alarm.off();
        threads::hand_over(engine_of(task.sched()), worker);
    }
}
