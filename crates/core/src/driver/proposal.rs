//! A policy's choice of what to run.

use super::{Hook, RunQueue};
use crate::{CpuId, Enqueue, EventKind, Policy, TaskId};
use core::mem;

/// A task that the policy has released and that is not running yet (ghOSt, section 3.2: a transaction).
///
/// It ends in exactly one of four ways (D1); dropping it panics, because the task would be lost.
#[derive(Debug)]
#[must_use = "the policy has let go of this task: commit, reject, migrate or withdraw it"]
pub struct Proposal<C: Copy> {
    task: TaskId,
    claimed: C,
}

impl<C: Copy> Proposal<C> {
    #[inline(always)]
    pub(super) fn new(task: TaskId, claimed: C) -> Self {
        Proposal { task, claimed }
    }

    /// The task.
    #[inline]
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// The hook's reference to the task.
    #[inline]
    pub fn claimed(&self) -> C {
        self.claimed
    }

    /// Runs the task on `cpu` from now on.
    #[inline(always)]
    pub fn commit(self, hook: &impl Hook, cpu: CpuId) -> C {
        hook.record(cpu, self.task, EventKind::Start);
        self.withdraw()
    }

    /// Returns the task, which cannot run, to `queue`.
    pub fn reject<P: Policy, H: Hook>(self, queue: &mut RunQueue<'_, P, H>) -> C {
        queue.enqueue(self.task, Enqueue::CommitFailed);
        self.withdraw()
    }

    /// Makes the task wait in `queue`, a different queue from the one it came from.
    pub fn migrate<P: Policy, H: Hook>(self, queue: &mut RunQueue<'_, P, H>) -> C {
        queue.enqueue(self.task, Enqueue::Migrated);
        self.withdraw()
    }

    /// Leaves the task with the hook: a dispatcher has it on its way to a CPU, or an agent has learned that it sleeps
    /// or has ended, and tells the policy by `block` or `exit`.
    #[inline(always)]
    pub fn withdraw(self) -> C {
        let claimed = self.claimed;
        mem::forget(self);
        claimed
    }
}

impl<C: Copy> Drop for Proposal<C> {
    #[cold]
    fn drop(&mut self) {
        panic!("{} was proposed and neither committed nor rejected", self.task);
    }
}
