//! What runs a function that anyone may call.

use crate::task::Task;
use crate::worker::Worker;
use heddle_arch::PreemptCount;

/// What runs the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A task that may park.
    Task,
    /// A kernel thread that is not the runtime's, or a task that holds preemption off: it waits in the kernel.
    Thread,
    /// The runtime itself, between two tasks: it waits for nothing but its own futexes.
    Runtime,
}

impl Caller {
    /// Returns what runs the caller. Two loads in a task.
    #[inline]
    pub fn here() -> Caller {
        if Task::current().is_some() {
            // SAFETY: a task runs on a worker, whose block GS points to.
            return if unsafe { PreemptCount::depth() } == 0 {
                Caller::Task
            } else {
                Caller::Thread
            };
        }
        if Worker::here().is_some() { Caller::Runtime } else { Caller::Thread }
    }
}
