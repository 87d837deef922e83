//! Waking a task of any runtime from any thread.

use crate::task::{EntityRef, Scheduler, TaskRef};
use crate::worker::Worker;
use std::ptr;

/// Runs `f` on the scheduler of `task`, if its runtime, which may be any, still exists. Preemption is off.
#[inline]
pub(crate) fn reach<R>(task: EntityRef, f: impl FnOnce(&'static dyn Scheduler) -> R) -> Option<R> {
    let liveness = task.get().liveness()?;
    // The threads of the task's own runtime are parties, so it exists. Most calls come from there.
    if Worker::here().is_some_and(|worker| ptr::eq(worker.liveness, liveness)) {
        return Some(f(liveness.scheduler()));
    }
    liveness.with(f)
}

/// Wakes the context `task`, whatever its runtime, and so what it runs. Preemption is off.
#[inline]
pub(crate) fn wake(task: TaskRef) {
    if task.get().wake.wake() {
        // A task of a runtime that was dropped never runs again.
        let task = task.get().entity();
        reach(task, |sched| sched.enqueue_woken(task));
    }
}
