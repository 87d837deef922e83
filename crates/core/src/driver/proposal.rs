//! What a policy wants to run.

use super::{Hook, RunQueue};
use crate::{CpuId, Enqueue, Policy, StepKind, TaskId};
use core::mem;

/// A task that the policy has let go of, and that runs nowhere yet (ghOSt, section 3.2: a transaction).
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

    /// Which task.
    #[inline]
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// What the hook calls it.
    #[inline]
    pub fn claimed(&self) -> C {
        self.claimed
    }

    /// The task runs on `cpu` from now on.
    #[inline(always)]
    pub fn commit(self, hook: &impl Hook, cpu: CpuId) -> C {
        hook.record(cpu, self.task, StepKind::Start);
        self.withdraw()
    }

    /// The task cannot run: it goes back into `queue`.
    pub fn reject<P: Policy, H: Hook>(self, queue: &mut RunQueue<'_, P, H>) -> C {
        queue.enqueue(self.task, Enqueue::CommitFailed);
        self.withdraw()
    }

    /// The task waits in `queue`, another one than it comes from.
    pub fn migrate<P: Policy, H: Hook>(self, queue: &mut RunQueue<'_, P, H>) -> C {
        queue.enqueue(self.task, Enqueue::Migrated);
        self.withdraw()
    }

    /// The hook keeps the task: a dispatcher has it on its way to a CPU, or an agent has learned that it sleeps or
    /// has ended, and tells the policy by `block` or `exit`.
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
