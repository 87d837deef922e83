//! A schedule, step by step: hooks record it, and two hooks can be compared by it.

use crate::{CpuId, Enqueue, Ns};
use core::fmt;

/// What happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// It was created and queued.
    New,
    /// It was woken and queued.
    Wakeup,
    /// It got the CPU.
    Start,
    /// It was taken off the CPU and queued.
    Preempted,
    /// It gave up the CPU and was queued.
    Yield,
    /// It went to sleep.
    Block,
    /// It ended.
    Exit,
}

impl StepKind {
    /// The step that a task takes when it enters a queue for this reason; `None` for a task that only changes queues.
    #[inline(always)]
    pub const fn queued(why: Enqueue) -> Option<StepKind> {
        match why {
            Enqueue::New => Some(StepKind::New),
            Enqueue::Wakeup => Some(StepKind::Wakeup),
            Enqueue::Yield => Some(StepKind::Yield),
            Enqueue::Preempted => Some(StepKind::Preempted),
            Enqueue::Migrated | Enqueue::CommitFailed => None,
        }
    }
}

impl fmt::Display for StepKind {
    /// The name in small letters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            StepKind::New => "new",
            StepKind::Wakeup => "wakeup",
            StepKind::Start => "start",
            StepKind::Preempted => "preempted",
            StepKind::Yield => "yield",
            StepKind::Block => "block",
            StepKind::Exit => "exit",
        })
    }
}

/// One step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// When, by the hook's clock.
    pub at: Ns,
    /// On which CPU; if the task was queued, the CPU of the queue (in the central model, the CPU that queued it).
    pub cpu: CpuId,
    /// Which task: 0, 1, ... in the order of creation.
    pub task: u64,
    /// What happened.
    pub what: StepKind,
}
