//! Into the policy's run queues, and who is told of it.

use super::{Engine, Step, What};
use heddle_core::{CpuId, Enqueue, Host, Model, Ns, Policy, TaskId};

impl<P: Policy> Engine<'_, P> {
    /// Puts a task that is new or was woken where the policy wants it, and sees to it that somebody runs it.
    pub(super) fn admit(&mut self, task: TaskId, why: Enqueue) {
        let home = self.comes_in_at(task);
        let binds = self.scenario.steering.binds || self.steering.is_some();
        let ask = P::MODEL == Model::PerCpu && self.cpus.len() > 1 && !binds;
        let cpu = match ask {
            true => {
                let (policy, _, cx) = self.parts(home);
                policy.place(&cx, task, home)
            }
            false => home,
        };
        self.enqueue(cpu, task, why);
        if self.desk.is_none() && self.offer(cpu) {
            return;
        }
        let taken = self.desk.is_some() && self.view.any_idle();
        if P::PREEMPTS && !taken {
            self.make_way(cpu, task);
        }
        self.look_if_overdue(cpu);
    }

    pub(super) fn enqueue(&mut self, cpu: CpuId, task: TaskId, why: Enqueue) {
        if let Some(what) = What::queued(why) {
            self.note(cpu, task, what);
        }
        let queue = Self::queue_of(cpu);
        let (policy, queues, cx) = self.parts(cpu);
        policy.enqueue(&cx, &mut queues[queue], task, why);
        self.publish(queue);
    }

    /// Brings the hint of a queue's length up to date (I3).
    #[inline]
    pub(super) fn publish(&mut self, queue: usize) {
        self.view.set_waiting(queue, self.policy.len(&self.queues[queue]));
    }

    /// A task waits at `cpu`: lets an idle CPU have it, that one first. False if none took it.
    fn offer(&mut self, cpu: CpuId) -> bool {
        if P::MODEL == Model::PerCpu && self.view.idle.contains(cpu) {
            return self.pick(cpu, self.costs.wake);
        }
        if P::MODEL == Model::PerCpu && !P::BALANCES {
            return false;
        }
        let mut asked = self.view.idle;
        while let Some(idle) = self.view.nearest_of(&asked, cpu) {
            if self.pick(idle, self.costs.wake) {
                return true;
            }
            // The first answers for all, unless one queue is kept from some CPUs and not from others.
            if P::WORK_CONSERVING || P::MODEL == Model::PerCpu {
                break;
            }
            asked.remove(idle);
        }
        false
    }

    /// A CPU has left a task while others are idle: where a policy holds CPUs back, that may have freed one of them.
    pub(super) fn offer_again(&mut self, cpu: CpuId) {
        let central = P::MODEL == Model::Central && self.desk.is_none();
        if central && !P::WORK_CONSERVING && self.view.waiting(0) > 0 {
            self.offer(cpu);
        }
    }

    /// Every idle CPU is taken: asks the policy who shall make way for `task`.
    fn make_way(&mut self, cpu: CpuId, task: TaskId) {
        let queue = Self::queue_of(cpu);
        let (policy, queues, cx) = self.parts(cpu);
        if let Some(named) = policy.preempt(&cx, &mut queues[queue], task) {
            self.tell(named);
        }
    }

    /// Something waits at `cpu` now: has a task there, or in the central model anywhere, outlived its quantum already?
    pub(super) fn look_if_overdue(&mut self, cpu: CpuId) {
        let due = match P::MODEL {
            Model::PerCpu => Some(cpu).filter(|&cpu| self.overdue.contains(cpu)),
            Model::Central => self.overdue.next_from(cpu),
        };
        if let Some(due) = due {
            // After whatever else comes in this instant, as a timer core that looks around would.
            self.overdue.remove(due);
            self.cpus[due.index()].look = self.view.now;
            self.schedule(due);
        }
    }

    #[inline]
    pub(super) fn note(&mut self, cpu: CpuId, task: TaskId, what: What) {
        if let Some(watch) = &mut self.watch {
            let task = self.jobs.get(task).born;
            watch.step(Step { at: self.view.now, cpu, task, what });
        }
    }

    /// When the policy is to be asked of a task that begins at `began`.
    #[inline]
    pub(super) fn first_look(&self, began: Ns) -> Ns {
        self.quantum.map_or(Ns::MAX, |quantum| began + quantum)
    }
}
