//! Switching from one context to the next.

use super::Shared;
use crate::carrier;
use crate::cpu_time;
use crate::domain::Domain;
use crate::pool::CARRIER_CLASS;
use crate::switch::finish_switch;
use crate::task::{Entity, EntityRef, Next, Task};
use crate::worker::{After, BUDGET, Worker};
use heddle_arch::{PreemptCount, switch};
use heddle_core::{Ns, Policy, Resched};
use heddle_sys::clock;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;

impl<P: Policy> Shared<P> {
    /// Like [`Shared::pick`], for a task that leaves the CPU: returns nothing if the worker's loop must run first.
    #[inline(always)]
    pub(super) fn pick_directly(&self, domain: &Domain<P>, worker: &Worker) -> Option<EntityRef> {
        let budget = worker.budget.get() - 1;
        worker.budget.set(budget);
        if budget == 0 {
            worker.budget.set(BUDGET);
            if self.core.inputs.exist() {
                worker.poll_first.set(true);
                return None;
            }
        }
        if !worker.attached.load(Ordering::Relaxed) {
            return None;
        }
        self.pick(domain, worker)
    }

    /// Records what the worker runs from now on: a task with a context.
    #[inline(always)]
    pub(super) fn dispatch(&self, worker: &Worker, task: Option<EntityRef>) {
        if cpu_time::is_kept() {
            let context = task.and_then(|task| task.get().context());
            worker.stats.meter.turn_to(context.map(|task| &task.cpu_time));
        }
        let address = task.map_or(std::ptr::null_mut(), |t| t.addr() as *mut Entity);
        worker.current.store(address, Ordering::Relaxed);
        worker.generation.store(worker.generation.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if P::USES_EXPECTED_WAIT && task.is_none() {
            self.turns[worker.cpu()].0.end(clock::now());
        }
        if let Some(task) = task {
            task.get().cpu.store(worker.cpu() as u32, Ordering::Relaxed);
            worker.stats.switches.add(1);
            self.begin_turn(worker);
        }
    }

    /// Starts the quantum of the task that the policy has chosen for the worker, even if it already had the CPU.
    #[inline(always)]
    pub(super) fn begin_turn(&self, worker: &Worker) {
        if P::USES_EXPECTED_WAIT {
            let (turns, now) = (&self.turns[worker.cpu()].0, clock::now());
            turns.end(now);
            turns.begin(now, 1);
        }
        if P::PREEMPTS {
            worker.asked.store(false, Ordering::Relaxed);
        }
        if let Some(quantum) = self.quantum_ticks {
            let waits = || self.domain_of(worker.cpu()).len() != 0 || self.core.inputs.exist();
            worker.begin_turn(quantum, waits, || self.late_end(worker));
        }
    }

    /// Returns how long the task whose turn begins may run if nothing is enqueued, if that is more than a quantum. The
    /// lock of the worker's queue is held.
    fn late_end(&self, worker: &Worker) -> Option<Ns> {
        let quantum = self.core.settings.quantum.filter(|_| P::EXTENDS)?;
        worker.alarm.before_late();
        let domain = self.domain_of(worker.cpu());
        self.drain_inbox(domain);
        // SAFETY: `dispatch` has stored it; a task's block is never unmapped.
        let task = unsafe { worker.current.load(Ordering::Relaxed).as_ref() }?;
        match self.locked(domain, worker.cpu(), &domain.rng).tick(task.id(), quantum) {
            Resched::Until(more) => Some(self.core.late(quantum + more, quantum)),
            _ => {
                worker.alarm.not_late();
                None
            }
        }
    }

    /// Makes `next`, or the worker's loop, what the worker runs from now on; `after` says what becomes of the calling
    /// task. The lock of the worker's queue is held.
    #[inline(always)]
    pub(super) fn give_way(
        &self,
        domain: &Domain<P>,
        worker: &Worker,
        next: Option<EntityRef>,
        after: After,
    ) -> Next {
        let context = next.and_then(|next| self.context_of(domain, next));
        self.dispatch(worker, next);
        worker.hold(domain.lock_itself(), after);
        let (sp, fs) = match context {
            Some(context) => (context.sp.get(), context.fs),
            None => {
                worker.stranded.set(next);
                (worker.loop_sp.get(), worker.loop_fs.get())
            }
        };
        // SAFETY: a context that is off CPU has left its stack pointer.
        Next { sp: unsafe { NonZeroUsize::new_unchecked(sp) }, fs }
    }

    /// Runs `task` from the worker's loop, with the lock held. Returns when some task switches back to the loop.
    pub(super) fn go(&'static self, domain: &Domain<P>, worker: &'static Worker, task: EntityRef) {
        self.core.works(worker.cpu());
        let context = match self.context_of(domain, task) {
            Some(context) => context,
            None => self.context_for_stranded(domain, task),
        };
        self.dispatch(worker, Some(task));
        worker.hold(domain.lock_itself(), After::Unlock);
        // SAFETY: as in `leave`; the loop of the worker is not preempted.
        unsafe {
            switch(worker.loop_sp.as_ptr(), context.sp.get(), context.fs);
            finish_switch();
            PreemptCount::set_depth(1);
        }
    }

    /// Returns the context of `task`, which was picked: its own, or a free carrier, which takes it on. The lock is
    /// held. Returns `None` if no carrier is free.
    #[inline(always)]
    fn context_of(&self, domain: &Domain<P>, task: EntityRef) -> Option<&'static Task> {
        task.get().context().or_else(|| {
            // SAFETY: the lock is held.
            let carrier = unsafe { domain.carriers() }.take()?.get();
            Self::mount(carrier, task);
            Some(carrier)
        })
    }

    /// Makes `carrier` carry `future`, which was picked. The lock is held.
    #[inline(always)]
    pub(super) fn mount(carrier: &Task, future: EntityRef) {
        carrier.set_entity(future);
        future.get().set_context(Some(carrier));
    }

    /// Makes a carrier for `future`, which was picked where none was free: other threads of the runtime were held up
    /// where they make them. The lock is held, and released meanwhile.
    #[cold]
    fn context_for_stranded(&'static self, domain: &Domain<P>, future: EntityRef) -> &'static Task {
        domain.unlock();
        let carrier = loop {
            match carrier::make(self, CARRIER_CLASS) {
                Ok(carrier) => break carrier.get(),
                // It has been taken from the queue, and only this worker can run it.
                Err(_) => heddle_sys::thread::sleep(Ns::from_ms(1)),
            }
        };
        domain.lock();
        Self::mount(carrier, future);
        carrier
    }
}
