//! A runtime as its own threads see it, whatever its policy.

use crate::core_state::Core;
use crate::task::{Liveness, Scheduler};
use crate::worker::{Remote, Worker};
use heddle_core::{Ns, Resched};
use std::os::fd::RawFd;

/// What the runtime's own threads ask for, in addition to what tasks ask ([`Scheduler`]). Preemption is off in all
/// calls.
pub(crate) trait Engine: Scheduler {
    /// Returns the policy-independent parts.
    fn core(&self) -> &Core;
    /// Runs a worker's loop for as long as it serves a CPU.
    fn serve(&'static self, worker: &'static Worker);
    /// Asks the policy whether the task on `worker` must yield after `ran`. Returns `None` if the queue is locked.
    fn tick(&self, worker: &Remote, ran: Ns) -> Option<Resched>;
    /// Takes the CPU from `worker` if it still runs its task number `generation`; returns whether it did. Done under
    /// the queue's lock, so the worker finds out before it can touch the queue.
    fn detach(&self, worker: &Remote, generation: u64) -> bool;
    /// Returns whether anything waits for the CPU with this index.
    fn is_work_waiting(&self, cpu: usize) -> bool;
    /// For the dispatcher: lets a central policy hand out tasks. Returns whether it did.
    fn dispatch_round(&self) -> bool;
    /// Returns whether a dispatch round would do something, or the runtime is stopping.
    fn is_dispatch_due(&self) -> bool;
    /// Returns whether no task is queued or running.
    fn is_drained(&self) -> bool;
    /// Called when the runtime is over: notifies everything that waits for the end of a task that has not ended.
    /// Preemption may be on.
    fn abandon_tasks(&self);
    /// Cancels all futures, so that workers drop them. Returns how many there were.
    fn cancel_futures(&'static self) -> usize;
    /// Returns the number of futures that have not ended.
    fn futures_left(&self) -> usize;
    /// Moves tasks from inboxes into their queues.
    #[cfg(virtual_time)]
    fn take_inboxes(&self);
    /// Returns the lengths of all run queues.
    fn queue_lengths(&self) -> Vec<usize>;
}

/// A runtime by reference, behind `dyn Any`: see [`Scheduler::engine`].
pub(crate) struct EngineRef(pub(crate) &'static dyn Engine);

/// Returns the runtime that owns this scheduler.
pub(crate) fn engine_of(sched: &'static dyn Scheduler) -> &'static dyn Engine {
    let engine = sched.engine().downcast_ref::<EngineRef>();
    engine.expect("every scheduler is a runtime's").0
}

/// A runtime that may have been dropped.
#[derive(Clone, Copy)]
pub(crate) struct WeakRuntime(&'static Liveness);

impl WeakRuntime {
    pub(crate) fn new(engine: &'static dyn Engine) -> WeakRuntime {
        WeakRuntime(engine.liveness())
    }

    /// Stops polling a descriptor, which is still open.
    pub(crate) fn remove_source(self, fd: RawFd) {
        self.with(|core| core.inputs.poller.remove(fd));
    }

    /// Runs `f` on the runtime's state if it still exists. `f` must not panic.
    pub(crate) fn with<R>(self, f: impl FnOnce(&Core) -> R) -> Option<R> {
        self.0.with(|sched| f(engine_of(sched).core()))
    }
}
