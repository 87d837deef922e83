//! Where tasks queue, and which worker is woken for them.

use super::Shared;
use super::shared::Call;
use crate::core_state::Placed;
use crate::domain::Domain;
use crate::join;
use crate::task::{EntityRef, Run, Task};
use crate::worker::{Remote, Worker};
use heddle_core::driver::{RunQueue, SearchResult, Victims};
use heddle_core::{CpuId, Enqueue, Model, Ns, Policy, Rng, TaskId};
use std::sync::atomic::Ordering;

impl<P: Policy> Shared<P> {
    /// Whether the policy may keep a worker without work from tasks that wait elsewhere. Such a worker sleeps while
    /// they wait, and looks again when another task was placed or its rest is over; other workers search for as long as
    /// anything waits.
    pub(super) const HOLDS_BACK: bool = P::BALANCES && !P::WORK_CONSERVING;
    /// As above, in the central model: only the policy knows which worker may run a task, so all resting workers are
    /// asked.
    const ASKS_ALL: bool = Self::HOLDS_BACK && matches!(P::MODEL, Model::Central);

    /// Puts a new or woken task where the policy wants it, and makes sure that a worker runs it. Preemption is off.
    pub(super) fn place(&'static self, task: EntityRef, why: Enqueue) {
        let worker = Worker::here().filter(|w| self.core.owns(w));
        let home = task.get().cpu.load(Ordering::Relaxed) as usize;
        let (from, id) = (worker.map_or(home, |w| w.cpu()), task.get().id());
        let cpu = self.choose(task, home, from, worker);
        let domain = self.domain_of(cpu);
        // The task itself may hold the lock while it leaves the CPU (see `WakeWord`): then use its inbox.
        if worker.is_some_and(|w| w.cpu() == cpu) && !task.get().is_on_cpu() {
            domain.lock();
            self.enqueue(domain, cpu, task.get(), why);
            domain.unlock();
        } else {
            task.get().home.store(domain.index, Ordering::Relaxed);
            // The inbox has no room for the reason, so a task that has never run is marked as such.
            task.get().set_run(if why == Enqueue::New { Run::Queued } else { Run::Absent });
            domain.leave(task);
        }
        // A worker that has lost its CPU (`blocking`) will not look into the queue again.
        let own = worker.filter(|w| w.cpu() == cpu && w.is_attached());
        if Self::HOLDS_BACK {
            self.core.placements.fetch_add(1, Ordering::Release);
        }
        let placed = Placed { cpu, local: own.is_some() };
        let taken = match Self::ASKS_ALL && !self.core.settings.has_dispatcher {
            true => self.core.unpark_all(),
            false => self.core.unpark_for(placed, P::MODEL, P::BALANCES),
        };
        // A worker's loop that puts a task into its own queue has nothing else to run.
        if taken || own.is_some_and(|w| w.current.load(Ordering::Relaxed).is_null()) {
            return;
        }
        // No second task need yield to this one; perhaps one must yield to another task that waits.
        if P::PREEMPTS && self.make_way(domain, cpu, task, id) && domain.len() <= 1 {
            return;
        }
        if let Some(worker) = own {
            worker.hasten();
        }
        if own.is_none() || P::MODEL == Model::Central {
            self.hasten(cpu);
        }
    }

    /// A task waits at `cpu`, or for any CPU in the central model, and all are busy. One of them, whose task has run
    /// the longest, is limited to its quantum.
    pub(super) fn hasten(&self, cpu: usize) {
        let unasked = |w: &&Remote| {
            let runs = !w.current.load(Ordering::Relaxed).is_null();
            runs && w.alarm.is_off() && !w.asked.load(Ordering::Relaxed)
        };
        let worker = match P::MODEL {
            Model::PerCpu => self.core.cpus[cpu].server(),
            Model::Central => {
                let workers = self.core.cpus.iter().filter_map(|cpu| cpu.server());
                workers.filter(unasked).min_by_key(|w| w.started.load(Ordering::Relaxed))
            }
        };
        if let Some(worker) = worker {
            worker.hasten_from_afar();
        }
    }

    /// Asks the policy which CPU must yield to `task`, which was left at `cpu` under the number `id`, and notifies that
    /// CPU. Returns whether it notified one.
    ///
    /// The lock is worth waiting for: its holder picks a task and leaves, and never waits. Meanwhile the task may have
    /// run and ended, and its block may serve another task, hence the number from before. The answer then concerns a
    /// task that is gone, and a CPU may be notified in vain.
    #[cold]
    fn make_way(&self, domain: &Domain<P>, cpu: usize, task: EntityRef, id: TaskId) -> bool {
        domain.lock();
        self.drain_inbox(domain);
        let waits = task.get().run() == Run::Queued
            && task.get().home.load(Ordering::Relaxed) == domain.index;
        let named = waits.then(|| self.locked(domain, cpu, &domain.rng).preempt(id));
        domain.unlock();
        let worker = named.flatten().and_then(|at| self.core.cpus[at.index()].server());
        worker.is_some_and(|worker| self.core.settings.mechanism.send(worker))
    }

    /// Asks the policy where `task` should queue, if there is a choice.
    #[inline]
    pub(super) fn choose(
        &self,
        task: EntityRef,
        home: usize,
        from: usize,
        worker: Option<&Worker>,
    ) -> usize {
        if self.core.cpus.len() == 1 || task.get().is_on_cpu() {
            return home;
        }
        if let Some(worker) = worker.filter(|_| self.core.is_stopping()) {
            // Other workers may have ended, since nothing was left for them. The caller's looks again.
            return worker.cpu();
        }
        let (id, home) = (task.get().id(), CpuId(home as u16));
        let own = worker.map(|worker| &worker.rng);
        self.core.draws.with(own, |rng| self.driver(from, rng).place(id, home)).index()
    }

    /// Searches other queues for work. Returns `None` if the worker ran some, else how long it may rest before it
    /// searches again.
    pub(super) fn balance(&'static self, worker: &'static Worker) -> Option<Ns> {
        let search = |rng: &Rng| {
            let mut victims = Queues { shared: self, thief: worker.cpu(), rng };
            self.driver(worker.cpu(), rng).search(&mut victims)
        };
        let stolen = match self.core.draws.with(Some(&worker.rng), search) {
            SearchResult::Tasks(stolen) => stolen,
            SearchResult::Later(time) => return Some(time),
            SearchResult::Nothing => return Some(Ns::MAX),
        };
        worker.stats.steals.add(stolen.len() as u64);
        let mut stolen = stolen.into_iter();
        let first = stolen.next().expect("a search that finds tasks finds one");
        let (cpu, own) = (worker.cpu(), self.domain_of(worker.cpu()));
        own.lock();
        for task in stolen {
            let waiting = task.claimed().get();
            waiting.home.store(own.index, Ordering::Relaxed);
            waiting.set_run(Run::Queued);
            task.migrate(&mut self.locked(own, cpu, &own.rng));
        }
        first.claimed().get().home.store(own.index, Ordering::Relaxed);
        let task = first.commit(&self.call(own), CpuId(cpu as u16));
        self.go(own, worker, task);
        None
    }

    /// Returns whether a worker of `cpu` that is about to sleep should look again instead.
    pub(super) fn has_work(&self, cpu: usize) -> bool {
        if self.core.settings.has_dispatcher {
            return self.core.cpus[cpu].mailbox.load(Ordering::Relaxed) != 0
                || self.core.is_stopping();
        }
        let elsewhere = || P::WORK_CONSERVING && self.domains.iter().any(|d| d.len() != 0);
        // Tasks that this worker may not run are no work for it; a change is new work.
        let own = || match Self::ASKS_ALL {
            true => !self.domain_of(cpu).inbox.is_empty(),
            false => self.domain_of(cpu).len() != 0,
        };
        own() || self.core.is_stopping() || self.core.inputs.has_due_timer() || elsewhere()
    }

    /// A task has left a worker's CPU: if the policy holds workers back, one of them may now be allowed a task.
    #[inline]
    pub(super) fn free_others(&self, domain: &Domain<P>) {
        if Self::ASKS_ALL && !self.core.settings.has_dispatcher && domain.len() != 0 {
            self.core.placements.fetch_add(1, Ordering::Release);
            self.core.unpark_all();
        }
    }

    /// Makes the task that waits for the end of `task` runnable early, if it belongs to this same queue: it cannot run
    /// before the lock is released, and by then `task` is off its stack. Returns whether it did.
    #[inline]
    pub(super) fn wake_joiner_here(&self, task: &Task, domain: &Domain<P>, cpu: usize) -> bool {
        let joiner =
            join::waiting_task(task).filter(|j| self.core.cpus.len() == 1 && self.is_mine(j.get()));
        let Some(joiner) = joiner.filter(|j| !j.get().wake.is_on_cpu()) else { return false };
        if joiner.get().wake.wake() {
            self.enqueue(domain, cpu, joiner.get().entity().get(), Enqueue::Wakeup);
        }
        true
    }

    /// Returns whether `task` belongs to this runtime.
    pub(super) fn is_mine(&self, task: &Task) -> bool {
        std::ptr::addr_eq(task.sched(), self)
    }
}

/// The queues of other CPUs, as searched by `thief`.
struct Queues<'a, P: Policy> {
    shared: &'a Shared<P>,
    thief: usize,
    rng: &'a Rng,
}

impl<'a, P: Policy> Victims<P> for Queues<'a, P> {
    type Hook = Call<'a, P>;

    fn reach<R>(
        &mut self,
        victim: CpuId,
        take: impl FnOnce(&mut RunQueue<'_, P, Call<'a, P>>) -> R,
    ) -> Option<R> {
        let domain = self.shared.domain_of(victim.index());
        // A worker that rests on purpose is not notified when the lock is released.
        if Shared::<P>::HOLDS_BACK {
            domain.lock();
        } else if !domain.try_lock() {
            return None;
        }
        self.shared.drain_inbox(domain);
        let taken = take(&mut self.shared.locked(domain, self.thief, self.rng));
        domain.unlock();
        Some(taken)
    }
}
