//! Where tasks queue, and who is woken for them.

use super::Shared;
use crate::core_state::Placed;
use crate::domain::Domain;
use crate::join;
use crate::task::{Run, Task, TaskRef};
use crate::worker::Worker;
use heddle_core::{CpuId, Enqueue, Policy, Rng};
use std::sync::atomic::Ordering;

impl<P: Policy> Shared<P> {
    /// Puts a new or woken task where the policy wants it, and sees to it that somebody runs it. Preemption is off.
    pub(super) fn place(&'static self, task: TaskRef, why: Enqueue) {
        let worker = Worker::here().filter(|w| self.core.owns(w));
        let home = task.get().cpu.load(Ordering::Relaxed) as usize;
        let from = worker.map_or(home, Worker::cpu);
        let Placed { cpu, preempt, .. } = self.choose(task, home, from, worker);
        let domain = self.domain_of(cpu);
        // The lock may be held by the task itself, which is on its way out (see `WakeWord`): then into its inbox.
        if worker.is_some_and(|w| w.cpu() == cpu) && !task.get().wake.is_on_cpu() {
            domain.lock();
            self.enqueue(domain, cpu, task.get(), why);
            domain.unlock();
        } else {
            task.get().home.store(domain.index, Ordering::Relaxed);
            // The inbox has no room for the reason: a task that never ran is marked as such.
            task.get().set_run(if why == Enqueue::New { Run::Queued } else { Run::Absent });
            domain.leave(task);
        }
        // A worker that has lost its CPU (`blocking`) will not look into the queue again.
        let local = worker.is_some_and(|w| w.cpu() == cpu && w.is_attached());
        self.core.kick(Placed { cpu, local, preempt }, P::MODEL, P::WORK_CONSERVING);
    }

    /// Asks the policy where `task` shall queue, if there is a choice.
    #[inline]
    pub(super) fn choose(
        &self,
        task: TaskRef,
        home: usize,
        from: usize,
        worker: Option<&Worker>,
    ) -> Placed {
        if self.core.cpus.len() == 1 || task.get().wake.is_on_cpu() {
            return Placed { cpu: home, local: false, preempt: false };
        }
        let outside = Rng::new(task.addr() as u64);
        let rng = worker.map_or(&outside, |w| &w.rng);
        let place = self.policy.place(&self.cx(from, rng), task.get().id(), CpuId(home as u16));
        Placed { cpu: place.cpu.index(), local: false, preempt: place.preempt }
    }

    /// Looks for work in other queues; true if the worker ran some.
    pub(super) fn balance(&'static self, worker: &'static Worker) -> bool {
        let cpu = worker.cpu();
        for attempt in 0.. {
            let cx = self.cx(cpu, &worker.rng);
            let Some(victim) = self.policy.balance(&cx, attempt) else { return false };
            if let Some(task) = self.steal_from(victim.index(), cpu, worker) {
                worker.stats.steals.add(1);
                let own = self.domain_of(cpu);
                own.lock();
                task.get().home.store(own.index, Ordering::Relaxed);
                self.go(worker, task);
                return true;
            }
        }
        false
    }

    pub(super) fn steal_from(&self, victim: usize, cpu: usize, worker: &Worker) -> Option<TaskRef> {
        let domain = self.domain_of(victim);
        if victim == cpu || !domain.try_lock() {
            return None;
        }
        self.drain_inbox(domain, victim);
        // SAFETY: the lock is held.
        let queue = unsafe { domain.queue() };
        let stolen = self.policy.steal(&self.cx(cpu, &worker.rng), queue);
        domain.publish(self.policy.len(queue));
        let task = stolen.map(|id| self.commit(id, domain));
        domain.unlock();
        task
    }

    /// Whether a worker of `cpu` that is about to sleep should rather look again.
    pub(super) fn has_work(&self, cpu: usize) -> bool {
        if self.core.has_dispatcher {
            return self.core.cpus[cpu].mailbox.load(Ordering::Relaxed) != 0
                || self.core.is_stopping();
        }
        let elsewhere = || P::WORK_CONSERVING && self.domains.iter().any(|d| d.len() != 0);
        self.domain_of(cpu).len() != 0
            || self.core.is_stopping()
            || self.core.timers.next() <= heddle_sys::clock::now()
            || elsewhere()
    }

    /// Makes the task that waits for the end of `task` runnable already, if it belongs to this very queue: it cannot run
    /// before the lock is released, and by then `task` is off its stack. True if so.
    #[inline]
    pub(super) fn wake_joiner(&self, task: &Task, domain: &Domain<P>, cpu: usize) -> bool {
        let joiner =
            join::waiting_task(task).filter(|j| self.core.cpus.len() == 1 && self.is_mine(j.get()));
        let Some(joiner) = joiner.filter(|j| !j.get().wake.is_on_cpu()) else { return false };
        if joiner.get().wake.wake() {
            self.enqueue(domain, cpu, joiner.get(), Enqueue::Wakeup);
        }
        true
    }

    /// Whether `task` belongs to this runtime.
    pub(super) fn is_mine(&self, task: &Task) -> bool {
        std::ptr::addr_eq(task.sched(), self)
    }
}
