//! Quanta end, and threads make way for others.

use super::Scheduler;
use super::cpus::Stage;
use super::table::{At, Is};
use crate::model::State;
use heddle_core::{CpuId, Enqueue, Model, Ns, Policy, Resched, TaskId};
use std::cmp::Reverse;

impl<P: Policy> Scheduler<'_, P> {
    /// When the policy is to be asked of a thread that gets its CPU now.
    pub(super) fn first_look(&self) -> Ns {
        self.policy.quantum().map_or(Ns::MAX, |quantum| self.view.now + quantum)
    }

    /// Asks about every thread whose time to be asked about has come.
    pub(super) fn look_at_due(&mut self, scope: Option<CpuId>) {
        for at in 0..self.cpus.len() {
            let (cpu, state) = (CpuId(at as u16), &self.cpus[at]);
            if scope.is_some_and(|scope| scope != cpu) || state.stage != Stage::Given {
                continue;
            }
            if state.make_way {
                self.replace(cpu);
            } else if state.look <= self.view.now {
                self.look(cpu);
            }
        }
    }

    /// The time of the thread on `cpu` may be up: asks the policy, if anybody waits.
    fn look(&mut self, cpu: CpuId) {
        let Some(task) = self.cpus[cpu.index()].task else { return };
        if self.view.waiting(Self::queue_of(cpu)) == 0 && !self.waits_aside(cpu) {
            self.cpu(cpu).look = Ns::MAX;
            self.overdue.insert(cpu);
            return;
        }
        let now = self.view.now;
        let next = match self.ran(cpu, task) {
            // It waits behind somebody, and its time has not begun.
            None => self.first_look(),
            Some(ran) => match self.tick(cpu, task, ran) {
                Resched::Now => return self.replace(cpu),
                Resched::After(time) => now + time,
                Resched::Never => Ns::MAX,
            },
        };
        self.cpu(cpu).look = next;
    }

    fn tick(&mut self, cpu: CpuId, task: TaskId, ran: Ns) -> Resched {
        if self.threads[task.index()].at == At::Guest {
            // The policy does not know that it runs.
            let quantum = self.policy.quantum().unwrap_or(Ns::MAX);
            return if ran >= quantum { Resched::Now } else { Resched::After(quantum - ran) };
        }
        self.reclassify(task);
        self.on(cpu).tick(task, ran)
    }

    /// How long `task` has run since it got `cpu`; `None` if it has not begun. It may be off the CPU at this very moment: the agent
    /// itself may have interrupted it there to ask.
    fn ran(&self, cpu: CpuId, task: TaskId) -> Option<Ns> {
        let ran = self.run_in_all(task) - self.cpus[cpu.index()].ran_before;
        (ran != Ns::ZERO).then_some(ran)
    }

    /// How long `task` has run in its life; not longer than the machine, whatever its status word says: policies add such times up.
    pub(super) fn run_in_all(&self, task: TaskId) -> Ns {
        let (word, now) = (self.backend.thread(task), self.view.now);
        let ran = match word.state {
            State::OnCpu => word.runtime + (now - word.on_at),
            _ => word.runtime,
        };
        ran.min(now)
    }

    /// Something waits at `cpu` now: has a thread there, or in the central model anywhere, outlived its quantum already? Of several the
    /// one that has run the longest is looked at.
    pub(super) fn look_if_overdue(&mut self, cpu: CpuId) {
        let ran = |cpu: CpuId| self.cpus[cpu.index()].task.and_then(|task| self.ran(cpu, task));
        let due = match P::MODEL {
            Model::PerCpu => Some(cpu).filter(|&cpu| self.overdue.contains(cpu)),
            Model::Central => self.overdue.iter().min_by_key(|&cpu| Reverse(ran(cpu))),
        };
        if let Some(due) = due {
            self.overdue.remove(due);
            self.cpu(due).look = self.view.now;
            self.nudge(due);
        }
    }

    /// Local agents: the one of `cpu` shall come by.
    pub(super) fn nudge(&mut self, cpu: CpuId) {
        if self.reads.len() > 1 {
            self.nudged.insert(cpu);
        }
    }

    /// Asks the policy who makes way for the threads that became runnable and that no CPU took.
    pub(super) fn make_way_for_woken(&mut self, scope: Option<CpuId>) {
        while let Some(task) = self.woken.pop() {
            let known = self.threads[task.index()];
            if known.at != At::Queued || known.is != Is::Parked || known.is_reborn {
                continue;
            }
            let Some(named) = self.on(known.home).preempt(task) else { continue };
            if scope.is_none_or(|scope| scope == named) {
                self.replace(named);
            } else if self.cpus[named.index()].stage == Stage::Given {
                self.cpu(named).make_way = true;
                self.nudge(named);
            }
        }
    }

    /// The thread of `cpu` makes way for whom the policy wants there next; that one is committed over it, so that the CPU is
    /// never without a thread. It may be the same again.
    pub(super) fn replace(&mut self, cpu: CpuId) {
        let Some(task) = self.cpus[cpu.index()].task else { return };
        let stage = self.cpus[cpu.index()].stage;
        if stage == Stage::Awaiting {
            return;
        }
        self.tally.counts.preemptions += u64::from(stage == Stage::Given);
        let before = self.cpu(cpu).before.take();
        let at = self.threads[task.index()].at;
        self.vacate(cpu);
        let why = if at == At::Guest { Enqueue::Wakeup } else { Enqueue::Preempted };
        self.enqueue(cpu, task, why);
        self.succession(cpu, if stage == Stage::Given { Some(task) } else { before });
    }

    /// Finds a successor for `before`, which runs on `cpu` and has been queued. Where there is none, the CPU is taken from it.
    pub(super) fn succession(&mut self, cpu: CpuId, before: Option<TaskId>) {
        self.cpu(cpu).before = before;
        if !self.pick(cpu) {
            return self.force(cpu);
        }
        if self.cpus[cpu.index()].task == before {
            self.cpu(cpu).before = None;
        }
    }

    /// Takes `cpu` from the thread that was to leave it for a successor that did not come.
    pub(super) fn force(&mut self, cpu: CpuId) {
        let Some(task) = self.cpu(cpu).before.take() else { return };
        if self.depart(task, cpu) {
            self.backend.preempt(cpu);
        }
    }

    /// `task` has to leave `cpu`, or has left it already. False if it has.
    pub(super) fn depart(&mut self, task: TaskId, cpu: CpuId) -> bool {
        let known = self.thread(task);
        let is_there = known.is == Is::Given && known.on == cpu;
        if is_there {
            known.is = Is::Leaving;
        }
        is_there
    }
}
