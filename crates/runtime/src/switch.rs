//! Switching from one context to the next.
//!
//! The rule: the context that leaves the CPU locks the run queue, and the next context unlocks it ([`After`]). So any
//! task that a worker finds in a queue is off its stack, and nothing ever waits for a flag.
//!
//! None of this is behind [`Scheduler`](crate::task::Scheduler), because every switch would pay for it; a scheduler
//! decides, and returns [`Next`].

use crate::task::{HeaderRef, Next, Task, TaskRef};
use crate::worker::{After, Worker};
use heddle_arch::{PreemptCount, resume, switch};
use heddle_sync::Ended;
use std::sync::atomic::Ordering;

/// Leaves the calling task for `next`. Returns when the task runs again, on whatever worker, with the preempt count
/// as it was.
///
/// Here and not behind the trait, and inlined, for the reason given at [`heddle_arch::switch()`]: a `ret` after the
/// switch is mispredicted.
#[inline(always)]
pub(crate) fn leave(task: &'static Task, next: Next) {
    // SAFETY: a task runs on a worker.
    let depth = unsafe { PreemptCount::depth() };
    // SAFETY: `next` belongs to a context that is off CPU: a task that was queued under the lock, or the loop of this
    // very worker. The lock is held until `finish_switch`.
    unsafe { switch(task.sp.as_ptr(), next.sp.get(), next.fs) };
    // Do this first: a pending request was meant for others, while `finish_switch` makes requests of this task.
    // SAFETY: as above, perhaps another worker.
    unsafe {
        PreemptCount::set_depth(depth);
        finish_switch();
    }
}

/// Calls [`leave`] if there is a context to leave for.
#[inline(always)]
pub(crate) fn leave_for(task: &'static Task, next: Option<Next>) {
    if let Some(next) = next {
        leave(task, next);
    }
}

/// Leaves the calling task, which has ended, for `next`.
pub(crate) fn leave_for_good(next: Next) -> ! {
    // SAFETY: as in `leave`; nothing has the stack pointer of a task that has ended.
    unsafe { resume(next.sp.get(), next.fs) }
}

/// Completes the switch in the context switched to: does what the previous context requested ([`After`]) and releases
/// the lock that it took.
///
/// # Safety
/// The caller is a task or a worker's loop, right after a switch, with preemption off.
#[inline(always)]
pub(crate) unsafe fn finish_switch() {
    // SAFETY: by the caller's promise.
    let worker = unsafe { Worker::current() };
    if worker.unanswered.load(Ordering::Relaxed) {
        answer_next(worker);
    }
    match worker.after.get() {
        After::Unlock => {}
        After::Park(task) => task.get().wake.finish_park(),
        After::End(future) => {
            worker.release();
            return finish_end(future);
        }
        After::Exit { task, woken } => return finish_exit(worker, task, woken),
    }
    worker.release();
}

/// A signal came before the switch was complete: the context looks why as soon as it can be preempted.
#[cold]
fn answer_next(worker: &Worker) {
    worker.unanswered.store(false, Ordering::Relaxed);
    // SAFETY: the caller is on a worker.
    unsafe { PreemptCount::set_pending() };
}

/// The end of [`finish_switch`] if `future`, of the worker's runtime, has ended.
fn finish_end(future: HeaderRef) {
    if future.get().state.drop_reference()
        && let Some(liveness) = future.entity().get().liveness()
    {
        liveness.scheduler().recycle_future(future);
    }
}

/// The end of [`finish_switch`] if `task` has ended.
fn finish_exit(worker: &Worker, task: TaskRef, woken: bool) {
    // Read before the end is published: right after it the block may belong to another runtime.
    let sched = task.get().sched();
    // Before the unlock: a joiner that was woken for this may run right after it, and sees the end.
    let ended = match woken {
        true => {
            task.get().end.publish_woken();
            Ended::Nothing
        }
        false => task.get().end.publish(),
    };
    worker.release();
    match ended {
        Ended::Nothing => {}
        Ended::Recycle => sched.recycle(task),
        Ended::Wake(word) => sched.wake_joiner(word),
    }
}
