//! A runtime as its own threads see it, whatever its policy.

use crate::core_state::Core;
use crate::task::{Liveness, Scheduler};
use crate::worker::{Remote, Worker};
use heddle_core::{Ns, Resched};
use std::os::fd::RawFd;
use std::ptr::NonNull;

/// What the runtime's own threads ask, beside what tasks ask ([`Scheduler`]). Preemption is off in all calls.
pub(crate) trait Engine: Scheduler {
    /// The parts that do not depend on the policy.
    fn core(&self) -> &Core;
    /// The loop of a worker, as long as it serves a CPU.
    fn serve(&'static self, worker: &'static Worker);
    /// Asks the policy whether the task that `worker` runs must go after `ran`; `None` if the queue is in use.
    fn tick(&self, worker: &Remote, ran: Ns) -> Option<Resched>;
    /// Takes the CPU from `worker` if it still runs its task number `generation`; true if so. Under the queue's lock,
    /// so that the worker finds out before it can touch the queue.
    fn detach(&self, worker: &Remote, generation: u64) -> bool;
    /// Whether anything waits for the CPU with this index.
    fn is_work_waiting(&self, cpu: usize) -> bool;
    /// Lets a central policy hand out tasks; whether it did. For the dispatcher.
    fn dispatch_round(&self) -> bool;
    /// Whether a dispatch round would do something, or the runtime stops.
    fn is_dispatch_due(&self) -> bool;
    /// Whether no task is queued or runs.
    fn is_drained(&self) -> bool;
    /// The runtime is over: notifies everything that waits for the end of a task that has not ended. Preemption may
    /// be on.
    fn abandon_tasks(&self);
    /// Moves tasks from inboxes into their queues.
    #[cfg(virtual_time)]
    fn take_inboxes(&self);
    /// Lengths of all run queues.
    fn queue_lengths(&self) -> Vec<usize>;
}

/// A runtime by reference, behind `dyn Any`: see [`Scheduler::engine`].
pub(crate) struct EngineRef(pub(crate) &'static dyn Engine);

/// The runtime whose scheduler this is.
pub(crate) fn engine_of(sched: &'static dyn Scheduler) -> &'static dyn Engine {
    let engine = sched.engine().downcast_ref::<EngineRef>();
    engine.expect("every scheduler is a runtime's").0
}

/// A runtime that may have been dropped.
#[derive(Clone, Copy)]
pub(crate) struct WeakRuntime {
    liveness: &'static Liveness,
    engine: NonNull<dyn Engine>,
}

// SAFETY: an engine is shared by threads, and is reached while it is held open only.
unsafe impl Send for WeakRuntime {}
// SAFETY: as above.
unsafe impl Sync for WeakRuntime {}

impl WeakRuntime {
    pub(crate) fn new(engine: &'static dyn Engine) -> WeakRuntime {
        WeakRuntime { liveness: engine.liveness(), engine: NonNull::from(engine) }
    }

    /// Stops polling a descriptor, which is still open.
    pub(crate) fn remove_source(self, fd: RawFd) {
        // SAFETY: the runtime, which is this engine, is held open.
        self.liveness.with(|_| unsafe { self.engine.as_ref() }.core().inputs.poller.remove(fd));
    }
}
