//! Enqueues tasks in the policy's run queues and finds CPUs for them.

use super::jobs::Jobs;
use super::view::View;
use super::{Broken, Engine, Event, EventKind, Watch};
use heddle_core::driver::{Driver, Hook, OwnedQueues, Rule, RunQueue, SearchResult};
use heddle_core::{CpuId, Cx, Enqueue, Host, Layer, Model, Ns, Policy, TaskId};
use std::cell::RefCell;
use std::panic::resume_unwind;

/// The engine's hook for one call about `queue`.
pub(super) struct Call<'a, 's, T> {
    view: &'a View,
    jobs: &'a Jobs<T>,
    watch: Option<&'a RefCell<&'s mut dyn Watch>>,
    queue: usize,
}

impl<T: Default> Hook for Call<'_, '_, T> {
    type Claimed = TaskId;

    /// Updates the hint (I3).
    #[inline]
    fn publish(&self, len: usize) {
        self.view.set_waiting(self.queue, len);
    }

    #[inline]
    fn claim(&self, task: TaskId) -> Option<TaskId> {
        self.jobs.claim(task, self.queue).then_some(task)
    }

    #[inline]
    fn record(&self, cpu: CpuId, task: TaskId, kind: EventKind) {
        if let Some(watch) = self.watch {
            let task = self.jobs.get(task).born as u32;
            let event = Event::task(self.view.now, cpu, task, kind);
            watch.borrow_mut().step(event.of(Layer::Sim));
        }
    }

    /// Unwinds to [`crate::run()`], which turns it into an error.
    fn broke(&self, policy: &'static str, rule: Rule) -> ! {
        resume_unwind(Box::new(Broken { policy, rule }))
    }
}

impl<'s, P: Policy> Engine<'s, P> {
    /// Returns the hook of a call for `cpu`.
    #[inline]
    pub(super) fn call(&self, cpu: CpuId) -> Call<'_, 's, P::Task> {
        let (view, jobs, queue) = (&self.view, &self.jobs, Self::queue_of(cpu));
        Call { view, jobs, watch: self.watch.as_ref(), queue }
    }

    /// Returns a driver for a call for `cpu`.
    #[inline]
    pub(super) fn driver(&self, cpu: CpuId) -> Driver<'_, P, Call<'_, 's, P::Task>> {
        let cx = Cx::new(cpu, self.jobs.slots(), &self.view, &self.rng);
        Driver::new(&self.policy, cx, self.call(cpu))
    }

    /// Returns the queue of `cpu`, in a call for it.
    #[inline]
    pub(super) fn on(&mut self, cpu: CpuId) -> RunQueue<'_, P, Call<'_, 's, P::Task>> {
        let queue = Self::queue_of(cpu);
        let call = Call { view: &self.view, jobs: &self.jobs, watch: self.watch.as_ref(), queue };
        let cx = Cx::new(cpu, self.jobs.slots(), &self.view, &self.rng);
        Driver::new(&self.policy, cx, call).on(&mut self.queues[queue])
    }

    /// Returns what `cpu`, whose queue is empty, finds in the queues of others.
    pub(super) fn search(&mut self, cpu: CpuId) -> SearchResult<TaskId> {
        let Engine { policy, queues, view, jobs, rng, watch, .. } = self;
        let (view, jobs, watch) = (&*view, &*jobs, watch.as_ref());
        let call = |cpu: CpuId| Call { view, jobs, watch, queue: cpu.index() };
        let cx = Cx::new(cpu, jobs.slots(), view, rng);
        Driver::new(&*policy, cx, call(cpu)).search(&mut OwnedQueues::new(policy, cx, queues, call))
    }

    /// Puts a new or woken task where the policy wants it and makes sure that some CPU runs it.
    pub(super) fn admit(&mut self, task: TaskId, why: Enqueue) {
        let home = self.arrival_cpu(task);
        let binds = self.scenario.steering.binds || self.steering.is_some();
        let cpu = if binds { home } else { self.driver(home).place(task, home) };
        let cpu = self.permitted(task, cpu);
        self.enqueue(cpu, task, why);
        if self.dispatcher.is_none() && self.offer(cpu) {
            return;
        }
        let taken = self.dispatcher.is_some() && self.view.any_idle();
        if P::PREEMPTS && !taken {
            self.preempt_for(cpu, task);
        }
        self.check_if_overdue(cpu);
    }

    pub(super) fn enqueue(&mut self, cpu: CpuId, task: TaskId, why: Enqueue) {
        self.on(cpu).enqueue(task, why);
        self.set_queued(cpu, task);
    }

    /// Records that `task` waits in the queue of `cpu`.
    #[inline]
    pub(super) fn set_queued(&mut self, cpu: CpuId, task: TaskId) {
        self.jobs.set_queued(task, Self::queue_of(cpu));
        self.affinity.set_queued(task, cpu);
    }

    /// A task waits at `cpu`: offers it to an idle CPU, `cpu` first. Returns false if none took it.
    fn offer(&mut self, cpu: CpuId) -> bool {
        if P::MODEL == Model::PerCpu && self.view.idle.contains(cpu) {
            return self.pick(cpu, self.costs.wake);
        }
        if P::MODEL == Model::PerCpu && !P::BALANCES {
            return false;
        }
        // The first CPU answers for all, unless a queue is closed to some CPUs and not to others.
        if P::WORK_CONSERVING || P::MODEL == Model::PerCpu {
            let nearest = self.view.nearest_idle(cpu);
            return nearest.is_some_and(|idle| self.pick(idle, self.costs.wake));
        }
        let mut asked = self.view.idle;
        while let Some(idle) = self.view.nearest_of(&asked, cpu) {
            if self.pick(idle, self.costs.wake) {
                return true;
            }
            asked.remove(idle);
        }
        false
    }

    /// A CPU has left a task while others are idle: if the policy holds CPUs back, this may have
    /// released one of them.
    pub(super) fn offer_again(&mut self, cpu: CpuId) {
        let central = P::MODEL == Model::Central && self.dispatcher.is_none();
        if central && !P::WORK_CONSERVING && self.view.waiting(0) > 0 {
            self.offer(cpu);
        }
    }

    /// Every idle CPU is taken: asks the policy which task yields to `task`.
    fn preempt_for(&mut self, cpu: CpuId, task: TaskId) {
        if let Some(named) = self.on(cpu).preempt(task) {
            self.request_preemption(named);
        }
    }

    /// A task now waits at `cpu`: checks whether a task there, or in the central model anywhere, has
    /// already outlived its quantum. Of several, the one that has run longest is checked.
    pub(super) fn check_if_overdue(&mut self, cpu: CpuId) {
        if self.quantum.is_none() || !self.has_unclaimed_task(Self::queue_of(cpu)) {
            return;
        }
        let due = match P::MODEL {
            Model::PerCpu => Some(cpu).filter(|&cpu| self.overdue.contains(cpu)),
            Model::Central => {
                self.overdue.iter().min_by_key(|overdue| self.cpus[overdue.index()].began)
            }
        };
        if let Some(due) = due {
            // After all other events of this instant, as a polling timer core would.
            self.overdue.remove(due);
            self.cpus[due.index()].check_at = self.noticed(self.view.now);
            self.schedule(due);
        }
    }

    /// Returns when to ask the policy about a task that begins at `began`.
    #[inline]
    pub(super) fn first_check(&self, began: Ns) -> Ns {
        self.quantum.map_or(Ns::MAX, |quantum| self.noticed(began + quantum))
    }

    /// Returns when the source of preemption notices what is so from `at` on.
    #[inline]
    pub(super) fn noticed(&self, at: Ns) -> Ns {
        match self.preemption.interval {
            Ns::ZERO => at,
            interval => Ns(at.0.checked_next_multiple_of(interval.0).unwrap_or(u64::MAX)),
        }
    }
}
