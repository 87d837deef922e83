//! The end of quanta, and threads that make way for others.

use super::Scheduler;
use super::cpus::Stage;
use super::thread::{KernelState, PolicyState};
use crate::model::State;
use heddle_core::{CpuId, Enqueue, Model, Ns, Policy, Resched, TaskId};
use std::cmp::Reverse;

impl<P: Policy> Scheduler<'_, P> {
    /// When to ask the policy about a thread that gets its CPU now.
    pub(super) fn first_check(&self) -> Ns {
        self.policy.quantum().map_or(Ns::MAX, |quantum| self.view.now + quantum)
    }

    /// Asks the policy about every thread whose check is due.
    pub(super) fn check_due_quanta(&mut self, scope: Option<CpuId>) {
        // Only local agents tell each other to make way.
        let looked_at = match scope {
            Some(_) => self.in_scope(scope, &self.running),
            None => self.deadlines.due(self.view.now).and(&self.running),
        };
        for cpu in looked_at.iter() {
            let state = &self.cpus[cpu.index()];
            if state.stage() != Stage::Committed {
                continue;
            }
            if state.make_way {
                self.replace(cpu);
            } else if state.check_at <= self.view.now {
                self.check_quantum(cpu);
            }
        }
    }

    /// Asks the policy whether the thread on `cpu` has used up its time, if another thread waits.
    fn check_quantum(&mut self, cpu: CpuId) {
        let Some(task) = self.cpus[cpu.index()].task else { return };
        if self.view.waiting(Self::queue_of(cpu)) == 0 && !self.has_deferred_for(cpu) {
            self.check_at(cpu, Ns::MAX);
            self.overdue.insert(cpu);
            return;
        }
        let now = self.view.now;
        let next = match self.ran(cpu, task) {
            // It waits behind an occupant; its time has not begun.
            None => self.first_check(),
            Some(ran) => match self.tick(cpu, task, ran) {
                Resched::Now => return self.replace(cpu),
                Resched::After(time) => now + time,
                Resched::Until(time) => {
                    self.overdue.insert(cpu);
                    now + time
                }
                Resched::Never => Ns::MAX,
            },
        };
        self.check_at(cpu, next);
    }

    fn tick(&mut self, cpu: CpuId, task: TaskId, ran: Ns) -> Resched {
        if self.threads[task.index()].policy_state() == PolicyState::DispatchedDeferred {
            // The policy does not know that the thread runs.
            let quantum = self.policy.quantum().unwrap_or(Ns::MAX);
            return if ran >= quantum { Resched::Now } else { Resched::After(quantum - ran) };
        }
        self.reclassify(task);
        self.on(cpu).tick(task, ran)
    }

    /// How long `task` has run since it got `cpu`; `None` if it has not begun. It may be off the CPU at this
    /// very moment, interrupted by the agent itself.
    fn ran(&self, cpu: CpuId, task: TaskId) -> Option<Ns> {
        let ran = self.total_run(task) - self.cpus[cpu.index()].ran_before;
        (ran != Ns::ZERO).then_some(ran)
    }

    /// The total run time of `task`, but not more than the machine's age, whatever its status word says:
    /// policies add such times up.
    pub(super) fn total_run(&self, task: TaskId) -> Ns {
        let (word, now) = (self.backend.thread(task), self.view.now);
        let ran = match word.state {
            State::OnCpu => word.runtime + (now - word.on_at),
            _ => word.runtime,
        };
        ran.min(now)
    }

    /// A thread waits at `cpu` now. If a thread there (in the central model: on any CPU) has outlived its
    /// quantum already, schedules a check of it; of several, of the one that has run longest.
    pub(super) fn check_if_overdue(&mut self, cpu: CpuId) {
        let ran = |cpu: CpuId| self.cpus[cpu.index()].task.and_then(|task| self.ran(cpu, task));
        let due = match P::MODEL {
            Model::PerCpu => Some(cpu).filter(|&cpu| self.overdue.contains(cpu)),
            Model::Central => self.overdue.iter().min_by_key(|&cpu| Reverse(ran(cpu))),
        };
        if let Some(due) = due {
            self.overdue.remove(due);
            self.check_at(due, self.view.now);
            self.nudge(due);
        }
    }

    /// Local agents: requests a round of the agent of `cpu`.
    pub(super) fn nudge(&mut self, cpu: CpuId) {
        if self.readers.len() > 1 {
            self.nudged.insert(cpu);
        }
    }

    /// Asks the policy which threads make way for those that became runnable and that no CPU took.
    pub(super) fn make_way_for_woken(&mut self, scope: Option<CpuId>) {
        while let Some(task) = self.woken.pop() {
            let known = self.threads[task.index()];
            if known.policy_state() != PolicyState::Queued
                || known.kernel_state() != KernelState::Parked
                || known.is_reused
            {
                continue;
            }
            let Some(named) = self.on(known.home).preempt(task) else { continue };
            if scope.is_none_or(|scope| scope == named) {
                self.replace(named);
            } else if self.cpus[named.index()].stage() == Stage::Committed {
                self.cpu(named).make_way = true;
                self.nudge(named);
            }
        }
    }

    /// Replaces the thread of `cpu` by the one that the policy wants there next, which may be the same. The
    /// successor is committed over it, so the CPU is never without a thread.
    pub(super) fn replace(&mut self, cpu: CpuId) {
        let Some(task) = self.cpus[cpu.index()].task else { return };
        let stage = self.cpus[cpu.index()].stage();
        if stage == Stage::Awaiting {
            return;
        }
        self.tally.counts.preemptions += u64::from(stage == Stage::Committed);
        let before = self.cpu(cpu).before.take();
        let at = self.threads[task.index()].policy_state();
        self.vacate(cpu);
        let why = if at == PolicyState::DispatchedDeferred {
            Enqueue::Wakeup
        } else {
            Enqueue::Preempted
        };
        self.enqueue(cpu, task, why);
        self.find_successor(cpu, if stage == Stage::Committed { Some(task) } else { before });
    }

    /// Finds a successor for `before`, which runs on `cpu` and has been queued. If there is none, takes the
    /// CPU from it.
    pub(super) fn find_successor(&mut self, cpu: CpuId, before: Option<TaskId>) {
        self.cpu(cpu).before = before;
        if !self.pick(cpu) {
            return self.force_off(cpu);
        }
        if self.cpus[cpu.index()].task == before {
            self.cpu(cpu).before = None;
        }
    }

    /// Takes `cpu` from the thread that was to leave it for a successor that did not come.
    pub(super) fn force_off(&mut self, cpu: CpuId) {
        let Some(task) = self.cpu(cpu).before.take() else { return };
        if self.start_leaving(task, cpu) {
            self.backend.preempt(cpu);
        }
    }

    /// Marks `task` as leaving `cpu`. Returns false if it has left already.
    pub(super) fn start_leaving(&mut self, task: TaskId, cpu: CpuId) -> bool {
        let known = self.thread(task);
        let is_there = known.kernel_state() == KernelState::Committed && known.on == cpu;
        if is_there {
            known.set_kernel_state(KernelState::Leaving);
        }
        is_there
    }
}
