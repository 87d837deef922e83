//! What the agent knows of a CPU, and which thread is assigned to it.

use super::{PATIENCE, Scheduler};
use crate::transition::{Checked, Transitions};
use heddle_core::{CpuId, Ns, Policy, TaskId};

/// How far the assignment of a thread to a CPU has come.
///
/// ```text
///          assign              commit
///  Free ----------> Chosen -----------> Committed ---> Free
///    |              |    ^                  ^
///    | assign stale |    | message          | found committed
///    |              v    |                  |
///    '----------> Awaiting -----------------'       each ---> Free (vacated)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No thread is assigned.
    #[default]
    Free,
    /// The thread is to be committed.
    Chosen,
    /// The commit waits for a message about the thread (P3).
    Awaiting,
    /// The thread is committed.
    Committed,
}

impl Transitions for Stage {
    fn successors(self) -> &'static [Stage] {
        use Stage::{Awaiting, Chosen, Committed, Free};
        match self {
            // Committed at once: the thread that still runs there is chosen again.
            Free => &[Chosen, Awaiting, Committed],
            Chosen => &[Awaiting, Committed, Free],
            Awaiting => &[Chosen, Committed, Free],
            // Again: a status word shows the thread back where it was committed.
            Committed => &[Committed, Free],
        }
    }
}

/// A CPU and its assignment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    pub task: Option<TaskId>,
    stage: Checked<Stage>,
    /// When the stage was entered.
    pub since: Ns,
    /// The thread's total run time when it got the CPU: a thread that is interrupted and comes back does not begin
    /// anew.
    pub ran_before: Ns,
    /// The thread that still runs while its successor is to be committed.
    pub before: Option<TaskId>,
    /// When to ask the policy whether the thread may run on ([`Scheduler::check_at`]).
    pub check_at: Ns,
    /// When a CPU without a thread searches for one again ([`heddle_core::Balance::Later`]).
    retry: Ns,
    /// Per-CPU model: the thread that was offered to this CPU. It may not be any more.
    pub offered: Option<TaskId>,
    /// The thread must make way when this CPU's own agent comes by.
    pub make_way: bool,
}

impl Cpu {
    /// How far the assignment has come.
    pub fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// When to look at the CPU again, if nothing happens before.
    pub fn deadline(&self) -> Ns {
        let waits = if self.stage() == Stage::Awaiting { self.since + PATIENCE } else { Ns::MAX };
        self.check_at.min(self.retry).min(waits)
    }

    /// Forgets the assignment that has ended.
    pub fn clear(&mut self) {
        *self = Cpu { stage: self.stage, offered: self.offered, ..Cpu::default() };
    }
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu {
            task: None,
            stage: Checked::default(),
            since: Ns::ZERO,
            ran_before: Ns::ZERO,
            before: None,
            check_at: Ns::MAX,
            retry: Ns::MAX,
            offered: None,
            make_way: false,
        }
    }
}

impl<P: Policy> Scheduler<'_, P> {
    /// Asks the policy at the time `at` whether the thread on `cpu` may run on.
    pub(super) fn check_at(&mut self, cpu: CpuId, at: Ns) {
        self.cpu(cpu).check_at = at;
        self.reschedule(cpu);
    }

    /// Searches for a thread for `cpu` again at the time `at`.
    pub(super) fn retry_at(&mut self, cpu: CpuId, at: Ns) {
        self.cpu(cpu).retry = at;
        self.reschedule(cpu);
    }

    /// In this round all free CPUs look for work, also those for which it is time to look again. One that is not free,
    /// or for which nothing waits any more, does not look, and must not make the next round due at once.
    pub(super) fn forget_due_retries(&mut self, scope: Option<CpuId>) {
        let (due, now) = (self.deadlines.due(self.view.now), self.view.now);
        for cpu in self.in_scope(scope, &due).iter() {
            if self.cpus[cpu.index()].retry <= now {
                self.retry_at(cpu, Ns::MAX);
            }
        }
    }

    /// A time of `cpu` has changed.
    pub(super) fn reschedule(&mut self, cpu: CpuId) {
        self.deadlines.set(cpu, self.cpus[cpu.index()].deadline());
    }

    /// Moves the assignment of `cpu` to its next stage, and keeps the sets of CPUs by stage.
    ///
    /// # Panics
    /// If the stage may not follow the present one.
    #[track_caller]
    pub(super) fn set_stage(&mut self, cpu: CpuId, next: Stage) {
        let now = self.view.now;
        let state = &mut self.cpus[cpu.index()];
        state.stage.transition(next);
        state.since = now;
        self.view.touch(cpu);
        self.reschedule(cpu);
        for (stage, set) in [
            (Stage::Free, &mut self.free),
            (Stage::Chosen, &mut self.chosen),
            (Stage::Awaiting, &mut self.awaiting),
            (Stage::Committed, &mut self.running),
        ] {
            match stage == next {
                true => set.insert(cpu),
                false => set.remove(cpu),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stage;
    use crate::transition::check_table;

    #[test]
    fn an_assignment_goes_through_its_stages_in_order() {
        use Stage::{Awaiting, Chosen, Committed, Free};
        check_table(
            &[Free, Chosen, Awaiting, Committed],
            "Free -> Chosen Awaiting Committed
             Chosen -> Awaiting Committed Free
             Awaiting -> Chosen Committed Free
             Committed -> Committed Free",
        );
    }
}
