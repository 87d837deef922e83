//! Taking the CPU from a task that sleeps in the kernel without having said so.
//!
//! The ticker finds it asleep, a millisecond or two later. If its quantum ends while others wait, the alarm has woken
//! it: then the task itself finds that a system call was interrupted, which happens only to calls that sleep, and a
//! spare worker takes the CPU at once. Without a spare it sleeps on until the ticker sees it, which starts a worker: a
//! task may have been interrupted where nothing can be allocated.

use crate::engine::Engine;
use crate::task::{Entity, Task, TaskRef};
use crate::threads;
use crate::worker::{Remote, Worker};
use heddle_core::Ns;
use heddle_sys::thread::{self, Blocked};
use heddle_sys::usdt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Takes the CPU from a worker that sleeps in the kernel, if it still runs its task number `generation`. Returns
/// whether it did. For the ticker.
pub(crate) fn from_sleeper(
    engine: &'static dyn Engine,
    worker: &'static Remote,
    generation: u64,
) -> bool {
    let task = worker.current.load(Ordering::Relaxed);
    // Do this before the worker can come back.
    worker.alarm.recall();
    if !engine.detach(worker, generation) {
        worker.alarm.recalled();
        return false;
    }
    worker.alarm.off();
    engine.core().telemetry.others().takeovers.add(1);
    threads::hand_over(engine, worker);
    // SAFETY: null or a block, and blocks are never unmapped.
    if let Some(task) = unsafe { task.as_ref() }.and_then(Entity::context) {
        report(worker, task, thread::blocked_in(worker.tid.load(Ordering::Relaxed)));
    }
    true
}

/// How long the ticker is given to see a task that sleeps: more than two of its periods.
const UNTIL_SEEN: Ns = Ns::from_ms(3);

/// Gives the CPU of `worker`, the caller's, whose `task` was interrupted in `call`, to a spare, if others wait for it.
/// Returns whether the CPU is gone, or will be. Preemption is off.
pub(crate) fn from_interrupted(
    engine: &'static dyn Engine,
    task: &'static Task,
    worker: &'static Worker,
    call: Blocked,
) -> bool {
    if !worker.is_attached() || !engine.is_work_waiting(worker.cpu()) {
        return false;
    }
    if !threads::hand_over_to_spare(engine, worker) {
        worker.alarm.set_after(UNTIL_SEEN);
        return true;
    }
    worker.alarm.recall();
    worker.stats.takeovers.add(1);
    report(worker, task, Some(call));
    true
}

/// A thread library's look; see [`hook`].
static HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// What a thread library makes of a take-over.
pub(crate) type Look = fn(TaskRef, Option<Blocked>);

/// Makes `look` be called each time a task has lost its CPU because it sleeps in the kernel: with the task and the call
/// in which it sleeps, if that is known. It is called by the ticker or in a signal's handler: it allocates nothing and
/// waits for nothing.
pub(crate) fn hook(look: Look) {
    HOOK.store(look as *mut (), Ordering::Release);
}

/// `worker` has lost its CPU, because its `task` sleeps in `call`.
fn report(worker: &Remote, task: &'static Task, call: Option<Blocked>) {
    let number = call.map_or(Blocked::UNKNOWN, |call| call.number);
    usdt::worker_stuck(worker.cpu(), worker.tid.load(Ordering::Relaxed), task.id().0, number);
    let hook = HOOK.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: `hook` stored a function of this type.
        unsafe { std::mem::transmute::<*mut (), Look>(hook)(TaskRef::new(task), call) }
    }
}
