//! What the runtime's own threads ask of the scheduler.

use super::Shared;
use crate::core_state::Core;
use crate::domain::Domain;
use crate::engine::Engine;
use crate::join;
use crate::preempt::NoPreempt;
use crate::task::{EntityRef, HeaderRef, Run};
use crate::worker::{Remote, Worker};
use heddle_core::{Enqueue, Ns, Policy, Resched, TaskSlot};
use std::sync::atomic::Ordering;

impl<P: Policy> Engine for Shared<P> {
    fn core(&self) -> &Core {
        &self.core
    }

    fn serve(&'static self, worker: &'static Worker) {
        while worker.is_attached() {
            self.core.inputs.send_waiting();
            if self.core.is_over() || self.core.is_stopping() && self.is_done(worker) {
                break;
            }
            let cpu = worker.cpu();
            if let Some(share) = &self.core.settings.share
                && share.member().is_asked(cpu)
            {
                worker.alarm.off();
                share.member().make_way(cpu);
            }
            if worker.poll_first.replace(false) {
                self.core.inputs.take();
            }
            let domain = self.domain_of(cpu);
            // Read before looking into any queue: any placement after it counts as new.
            let seen = self.core.placements.load(Ordering::Acquire);
            domain.lock();
            if let Some(task) = worker.stranded.take().or_else(|| self.pick(domain, worker)) {
                worker.idle_since.set(0);
                self.go(domain, worker, task);
                continue;
            }
            domain.unlock();
            if self.core.inputs.take() {
                continue;
            }
            if let Some(at_most) = self.balance(worker) {
                worker.alarm.off();
                let has_new_task = || self.core.placements.load(Ordering::Acquire) != seen;
                self.core.park(worker, at_most, || self.has_work(cpu), has_new_task);
            }
        }
    }

    fn tick(&self, worker: &Remote, ran: Ns) -> Option<Resched> {
        let domain = self.domain_of(worker.cpu());
        if !domain.try_lock() {
            return None;
        }
        self.drain_inbox(domain);
        // Under the lock the task cannot leave the CPU, so it is still the one that ran.
        let task = worker.current.load(Ordering::Relaxed);
        // SAFETY: null or a block, and blocks are never unmapped.
        let answer = unsafe { task.as_ref() }.map_or(Resched::Never, |task| {
            self.locked(domain, worker.cpu(), &domain.rng).tick(task.id(), ran)
        });
        domain.unlock();
        Some(answer)
    }

    fn detach(&self, worker: &Remote, generation: u64) -> bool {
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        let same = worker.generation.load(Ordering::Relaxed) == generation && worker.is_attached();
        let detach = same && !worker.current.load(Ordering::Relaxed).is_null();
        if detach {
            worker.attached.store(false, Ordering::Release);
        }
        domain.unlock();
        detach
    }

    fn is_work_waiting(&self, cpu: usize) -> bool {
        self.domain_of(cpu).len() != 0
    }

    fn dispatch_round(&self) -> bool {
        self.round()
    }

    fn is_dispatch_due(&self) -> bool {
        self.due()
    }

    fn is_drained(&self) -> bool {
        let idle = |cpu: usize| {
            let worker = self.core.cpus[cpu].server();
            worker.is_none_or(|w| w.current.load(Ordering::Relaxed).is_null())
                && self.is_drained_for(cpu)
        };
        (0..self.core.cpus.len()).all(idle)
    }

    fn cancel_futures(&'static self) -> usize {
        if !self.has_futures() {
            return 0;
        }
        let mut waiting = Vec::with_capacity(self.slots.all().len());
        // No memory goes to another runtime meanwhile, so these are ours. One that must be enqueued stays until then.
        self.slots.hold(|| {
            let woken = self.futures().filter(|future| future.get().state.cancel());
            waiting.extend(woken.map(HeaderRef::entity));
        });
        let _guard = NoPreempt::new();
        waiting.into_iter().for_each(|future| self.place(future, Enqueue::Wakeup));
        self.futures_left()
    }

    fn futures_left(&self) -> usize {
        let is_left = |future: &HeaderRef| !future.get().state.is_done();
        self.slots.hold(|| self.futures().filter(is_left).count())
    }

    fn abandon_tasks(&self) {
        let slots = self.slots.all();
        // Reserve up front: nothing may be allocated under a lock that workers take.
        let mut waiters = Vec::with_capacity(slots.len());
        self.slots.hold(|| {
            waiters.extend(tasks_of(slots).filter_map(Abandoned::of));
        });
        waiters.into_iter().for_each(Abandoned::wake);
    }

    #[cfg(virtual_time)]
    fn take_inboxes(&self) {
        for domain in &self.domains {
            domain.lock();
            self.drain_inbox(domain);
            domain.unlock();
        }
    }

    fn queue_lengths(&self) -> Vec<usize> {
        self.domains.iter().map(Domain::len).collect()
    }
}

impl<P: Policy> Shared<P> {
    /// Returns whether nothing is left for `worker`, whose runtime is stopping. Carriers end last: their destructors of
    /// thread-local variables run.
    fn is_done(&'static self, worker: &Worker) -> bool {
        if !self.is_drained_for(worker.cpu()) {
            return false;
        }
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        // SAFETY: the lock is held.
        let carrier = unsafe { domain.carriers() }.take_last();
        domain.unlock();
        carrier.map(|carrier| self.end_carrier(carrier)).is_none() && !self.cancel_late_futures()
    }

    /// Cancels futures that tasks have created after [`Engine::cancel_futures`]. Returns whether any waits to be
    /// dropped. The worker of who creates one later comes here after that. Allocates nothing.
    fn cancel_late_futures(&'static self) -> bool {
        if !self.has_futures() {
            return false;
        }
        let mut waiting = [None; 64];
        self.slots.hold(|| {
            let late = self.futures().filter(|future| future.get().state.cancel());
            // No more are cancelled than there are places.
            waiting.iter_mut().zip(late).for_each(|(place, future)| *place = Some(future.entity()));
        });
        let late = waiting.into_iter().flatten();
        late.map(|future| self.place(future, Enqueue::Wakeup)).count() > 0
    }

    /// Returns whether there may be futures: the first one comes with carriers.
    fn has_futures(&self) -> bool {
        self.has_carriers.load(Ordering::Acquire)
    }

    /// Returns the futures of this runtime, also those that have ended. No slot changes hands meanwhile.
    fn futures(&self) -> impl Iterator<Item = HeaderRef> {
        tasks_of(self.slots.all()).filter_map(HeaderRef::of)
    }

    /// Aborts if the policy was given a task that it neither proposed nor counts. All threads have ended.
    pub(super) fn refuse_lost_tasks(&self) {
        let is_lost = |task: &EntityRef| {
            let home = task.get().home.load(Ordering::Relaxed) as usize;
            task.get().run() == Run::Queued && self.domains[home].len() == 0
        };
        let lost = self.slots.hold(|| tasks_of(self.slots.all()).find(is_lost));
        if let Some(task) = lost {
            heddle_sys::abort(format_args!(
                "policy `{}`: {} was enqueued and never proposed, and `len` does not count it; this is a fault in the \
                 policy",
                P::NAME,
                task.get().id()
            ))
        }
    }

    /// Returns whether nothing waits for the CPU with this index.
    fn is_drained_for(&self, cpu: usize) -> bool {
        self.domain_of(cpu).len() == 0 && self.core.cpus[cpu].mailbox.load(Ordering::Acquire) == 0
    }
}

/// Who waits for a task that never ends.
enum Abandoned {
    Thread(usize),
    Future(HeaderRef),
}

impl Abandoned {
    /// Abandons `task`. Returns who waits for its end, if anybody does.
    fn of(task: EntityRef) -> Option<Abandoned> {
        match HeaderRef::of(task) {
            Some(future) => future.lose().then_some(Abandoned::Future(future)),
            None => {
                let thread = task.get().context().filter(|thread| thread.is_thread())?;
                thread.end.abandon().map(Abandoned::Thread)
            }
        }
    }

    fn wake(self) {
        match self {
            Abandoned::Thread(word) => join::wake_joiner(word),
            Abandoned::Future(future) => future.wake_handle_of_lost(),
        }
    }
}

/// Returns the tasks of the slots in use. No slot changes hands meanwhile.
fn tasks_of<T>(slots: &[TaskSlot<T>]) -> impl Iterator<Item = EntityRef> {
    let hosts = slots.iter().map(|slot| slot.host.get() as usize).filter(|&host| host != 0);
    // SAFETY: an entity's address, which is this runtime's until its slot is given back.
    hosts.map(|host| unsafe { EntityRef::from_addr(host) })
}
