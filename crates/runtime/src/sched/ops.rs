//! What tasks ask of the scheduler.

use super::Shared;
use crate::carrier;
use crate::domain::Domain;
use crate::engine::Engine;
use crate::join;
use crate::liveness::Owned;
use crate::pool::{self, CARRIER_CLASS};
use crate::slab;
use crate::take_over;
use crate::task::{
    Entity, EntityRef, HeaderRef, Liveness, Mark, Next, PollEnd, Run, Scheduler, Task, TaskRef,
    Upkeep,
};
use crate::timers::Timer;
use crate::worker::{After, Worker};
use heddle_arch::PreemptCount;
use heddle_core::{
    CpuId, Enqueue, Event, EventKind, Layer, Model, Ns, Policy, Resched, Rng, TaskAttrs,
};
use heddle_sys::thread::Blocked;
use std::any::Any;
use std::io;
use std::sync::atomic::{Ordering, fence};

impl<P: Policy> Owned for Shared<P> {
    fn last_party_leaves(&self) {
        self.refuse_lost_tasks();
        self.abandon_tasks();
    }
}

impl<P: Policy> Scheduler for Shared<P> {
    fn liveness(&self) -> &'static Liveness {
        self.core.liveness()
    }

    fn engine(&self) -> &dyn Any {
        self.this.get().expect("set before any task is made")
    }

    #[inline]
    fn default_stack_class(&self) -> u8 {
        self.core.settings.stack_class
    }

    fn prepare(&'static self, class: u8, attrs: TaskAttrs) -> io::Result<TaskRef> {
        let worker = Worker::here().filter(|w| self.core.owns(w));
        let cached = worker.and_then(|w| w.cache().take(class));
        let task = cached.map_or_else(|| pool::take(class), Ok)?;
        self.admit(task, attrs)?;
        Ok(task)
    }

    #[inline]
    fn admit(&'static self, task: TaskRef, attrs: TaskAttrs) -> io::Result<()> {
        let worker = Worker::here().filter(|w| self.core.owns(w));
        if !task.get().is_thread_of(self.core.liveness()) {
            let id = self.slots.take()?;
            task.get().adopt(self, id);
            self.slots.all()[id.index()].host.set(task.get().entity().addr() as u64);
        }
        task.get().reset();
        self.begin_life(task.get().entity(), worker, attrs);
        Ok(())
    }

    fn attrs(&self, task: EntityRef) -> TaskAttrs {
        self.slots.all()[task.get().id().index()].attrs()
    }

    fn set_attrs(&self, task: EntityRef, attrs: TaskAttrs) {
        self.slots.all()[task.get().id().index()].set_attrs(attrs);
    }

    fn start(&'static self, task: EntityRef) {
        let cpu = task.get().cpu.load(Ordering::Relaxed) as usize;
        self.driver(cpu, &Rng::new(0)).init(task.get().id());
        self.place(task, Enqueue::New);
    }

    fn enqueue_woken(&'static self, task: EntityRef) {
        self.place(task, Enqueue::Wakeup);
    }

    #[inline]
    fn yield_now(&'static self, task: &'static Task) -> Option<Next> {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        let entity = task.entity();
        self.enqueue(domain, worker.cpu(), entity.get(), Enqueue::Yield);
        let next = self.pick_directly(domain, worker);
        if next == Some(entity) {
            self.begin_turn(worker);
            domain.unlock();
            return None;
        }
        self.free_others(domain);
        Some(self.give_way(domain, worker, next, After::Unlock))
    }

    #[inline]
    fn park(&'static self, task: &'static Task) -> Option<Next> {
        self.park_and(task, |domain, worker| self.pick_directly(domain, worker))
    }

    fn park_for_lock(&'static self, task: &'static Task, first: bool) -> Option<Next> {
        // A lock's holder may run on another CPU, and be done soon; if several wait, it has probably lost its CPU.
        let lends = !first || self.core.cpus.len() == 1;
        self.park_and(task, |domain, worker| {
            let lent = if lends { self.lend(domain, worker) } else { None };
            lent.or_else(|| self.pick_directly(domain, worker))
        })
    }

    unsafe fn set_timer(&self, timer: &Timer<TaskRef>) {
        // SAFETY: the caller is a task with preemption off; the timer stays, by its promise.
        let is_earliest = unsafe { self.core.inputs.timers.set(Worker::current().cpu(), timer) };
        if is_earliest {
            self.core.timer_is_earlier();
        }
    }

    fn cancel_timer(&self, timer: &Timer<TaskRef>) {
        self.core.inputs.timers.cancel(timer);
    }

    fn preempt(&'static self, task: &'static Task) -> Next {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        worker.stats.preemptions.add(1);
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        let entity = task.entity();
        self.enqueue(domain, worker.cpu(), entity.get(), Enqueue::Preempted);
        // SAFETY: the lock is held.
        unsafe { domain.preempted() }.push(entity);
        self.free_others(domain);
        // Through the loop: new input comes before preempted work (Aspen, section 3.2).
        if worker.looks_at_inputs() {
            worker.poll_first.set(true);
        }
        let next = self.give_way(domain, worker, None, After::Unlock);
        if P::MODEL == Model::Central {
            // The preempted task waits now, and others may have outlived their quanta.
            self.hasten(worker.cpu());
        }
        next
    }

    fn look_around(&'static self, task: &'static Task) -> Option<Next> {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        let core = &self.core;
        let (inputs, others_look) = (&core.inputs, core.settings.has_dispatcher);
        if !others_look
            && inputs.exist()
            && worker.looks_at_inputs()
            && (inputs.next_timer() != Ns::MAX || inputs.is_ready())
        {
            inputs.take();
        }
        let waiting = self.is_work_waiting(worker.cpu());
        let ran = worker.ran();
        if P::EXTENDS && waiting {
            worker.alarm.before_late();
        }
        let answer = if waiting { self.tick(worker, ran) } else { None };
        match answer {
            Some(Resched::Now) if self.may_preempt(task, worker) => {
                worker.alarm.not_late();
                return Some(self.preempt(task));
            }
            // Too many polls hold a stack.
            Some(Resched::Now) => worker.look_after(ran),
            Some(Resched::After(more)) => worker.look_after(more),
            Some(Resched::Until(limit)) => {
                let quantum = core.settings.quantum.unwrap_or(limit);
                worker.look_late(core.late(limit, quantum), quantum);
            }
            Some(Resched::Never) => worker.look_no_more(),
            // The queue is locked.
            None if waiting => worker.look_after(Ns(ran.0 / 4)),
            None => {
                core.nothing_waits(worker);
                fence(Ordering::SeqCst);
                if self.is_work_waiting(worker.cpu()) {
                    worker.hasten_from_afar();
                }
            }
        }
        None
    }

    fn give_cpu_away(&'static self, task: &'static Task, call: Blocked) -> bool {
        // SAFETY: the caller is a task with preemption off.
        take_over::from_interrupted(self, task, unsafe { Worker::current() }, call)
    }

    fn is_recorded(&self) -> bool {
        self.domains.first().is_some_and(|domain| domain.ring.is_on())
    }

    fn record_mark(&self, task: &Task, mark: Mark, name: &str) {
        self.core.telemetry.name_mark(mark.name, name);
        // SAFETY: the caller is a task with preemption off.
        let cpu = unsafe { Worker::current() }.cpu();
        let at = CpuId(cpu as u16);
        let event = Event::task(Ns::ZERO, at, task.id().0, EventKind::Mark).of(Layer::Runtime);
        let event =
            Event { by: mark.name, request: mark.of, arg: u32::from(mark.phase as u8), ..event };
        // Each ring is written under its queue's lock, also where the worker has lost its CPU.
        let domain = self.domain_of(cpu);
        domain.lock();
        domain.ring.record(|| event);
        domain.unlock();
    }

    fn exit(&'static self, task: &'static Task) -> Next {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        worker.stats.exited.add(1);
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        task.entity().get().set_run(Run::Absent);
        self.locked(domain, worker.cpu(), &domain.rng).exit(task.id());
        let woken = self.wake_joiner_here(task, domain, worker.cpu());
        let next = self.pick_directly(domain, worker);
        self.free_others(domain);
        self.give_way(domain, worker, next, After::Exit { task: TaskRef::new(task), woken })
    }

    fn prepare_future(&'static self, class: u8, attrs: TaskAttrs) -> io::Result<HeaderRef> {
        if !self.has_carriers.load(Ordering::Acquire) {
            self.make_carriers()?;
        }
        let worker = Worker::here().filter(|w| self.core.owns(w));
        let future = match worker {
            Some(w) => match w.slabs().take(class) {
                Some(future) => future,
                None => w.slabs().refill(class)?,
            },
            None => slab::take(class)?,
        };
        let entity = future.entity();
        if !entity.get().belongs_to(self.core.liveness()) {
            match self.slots.take() {
                Ok(id) => {
                    entity.get().adopt(self, id);
                    self.slots.all()[id.index()].host.set(entity.addr() as u64);
                }
                Err(error) => {
                    slab::give(class, [future].into_iter());
                    return Err(error);
                }
            }
        }
        self.begin_life(entity, worker, attrs);
        Ok(future)
    }

    fn recycle_future(&'static self, future: HeaderRef) {
        let class = future.class();
        match Worker::here().filter(|w| self.core.owns(w)) {
            Some(w) if w.slabs().keep(future) => {
                self.surrender_futures(class, w.slabs().surplus(class));
            }
            Some(_) => {}
            None => self.surrender_futures(class, [future].into_iter()),
        }
    }

    #[inline]
    fn end_poll(&'static self, task: &'static Task, end: PollEnd) -> Option<Next> {
        // SAFETY: the caller is a carrier with preemption off.
        let worker = unsafe { Worker::current() };
        let entity = task.entity();
        let future = HeaderRef::of(entity).expect("a carrier carries a future");
        if task.was_preempted.replace(false) {
            self.core.preempted_polls.fetch_sub(1, Ordering::Relaxed);
        }
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        entity.get().set_context(None);
        let after = match end {
            PollEnd::Pending => {
                self.put_back(domain, worker, future);
                After::Unlock
            }
            PollEnd::Ended => {
                worker.stats.exited.add(1);
                entity.get().set_run(Run::Absent);
                self.locked(domain, worker.cpu(), &domain.rng).exit(entity.get().id());
                After::End(future)
            }
        };
        let next = self.pick_directly(domain, worker);
        self.free_others(domain);
        if let Some(next) = next.filter(|next| next.get().context().is_none()) {
            Self::mount(task, next);
            self.dispatch(worker, Some(next));
            // A pending request was meant for the last future.
            // SAFETY: as above.
            unsafe { PreemptCount::set_depth(1) };
            domain.unlock();
            if let After::End(future) = after {
                future.drop_reference();
            }
            return None;
        }
        // SAFETY: the lock is held, until this carrier is off its stack.
        unsafe { domain.carriers() }.add(TaskRef::new(task));
        Some(self.give_way(domain, worker, next, after))
    }

    #[cold]
    fn keep_up(&'static self, task: &'static Task) {
        // SAFETY: the caller is a carrier with preemption off.
        let domain = self.domain_of(unsafe { Worker::current() }.cpu());
        match task.upkeep.get() {
            Upkeep::None => {}
            // Without memory the next one is made where it is needed.
            Upkeep::Make => drop(self.make_carriers_of(domain)),
            Upkeep::End => {
                domain.lock();
                // SAFETY: the lock is held.
                let surplus = unsafe { domain.carriers() }.take_surplus();
                domain.unlock();
                if let Some(surplus) = surplus {
                    self.end_carrier(surplus);
                }
            }
        }
    }

    fn answer_request(&'static self, task: &'static Task) -> Option<Next> {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        // A worker that has lost its CPU must let go of its task.
        let yields = !worker.is_attached() || self.may_preempt(task, worker);
        yields.then(|| self.preempt(task))
    }

    #[inline]
    fn is_cpu_wanted(&self, cpu: usize) -> bool {
        let share = self.core.settings.share.as_ref();
        share.is_some_and(|share| share.member().is_asked(cpu))
    }

    fn wake_joiner(&self, word: usize) {
        join::wake_joiner(word);
    }

    fn recycle(&'static self, task: TaskRef) {
        let class = task.get().stack.class;
        match Worker::here().filter(|w| self.core.owns(w)) {
            Some(w) if w.cache().keep(task) => self.surrender(class, w.cache().surplus(class)),
            Some(_) => {}
            None => self.surrender(class, [task].into_iter()),
        }
    }
}

impl<P: Policy> Shared<P> {
    /// Parks the calling task; what runs next is that which `pick` returns.
    #[inline(always)]
    fn park_and(
        &'static self,
        task: &'static Task,
        pick: impl FnOnce(&Domain<P>, &Worker) -> Option<EntityRef>,
    ) -> Option<Next> {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        // Must precede the announcement: after it, a waker may write these.
        let entity = task.entity();
        entity.get().set_run(Run::Absent);
        entity.get().home.store(domain.index, Ordering::Relaxed);
        if !task.wake.begin_park() {
            entity.get().set_run(Run::Running);
            task.wake.finish_park();
            domain.unlock();
            return None;
        }
        self.locked(domain, worker.cpu(), &domain.rng).block(entity.get().id());
        let next = pick(domain, worker);
        if next == Some(entity) {
            // The task was woken meanwhile and is chosen to run.
            self.begin_turn(worker);
            task.wake.finish_park();
            domain.unlock();
            return None;
        }
        self.free_others(domain);
        Some(self.give_way(domain, worker, next, After::Park(TaskRef::new(task))))
    }

    /// Takes a task that was preempted lately out of the queue, for a task that waits for a lock and lends it the CPU.
    /// The lock of `domain`, the worker's, is held.
    fn lend(&self, domain: &Domain<P>, worker: &Worker) -> Option<EntityRef> {
        if self.core.settings.has_dispatcher || !worker.is_attached() {
            return None;
        }
        let waits_here = |task: &Entity| {
            task.belongs_to(self.core.liveness())
                && task.run() == Run::Queued
                && task.home.load(Ordering::Relaxed) == domain.index
        };
        // SAFETY: the lock is held.
        let preempted = unsafe { domain.preempted() };
        loop {
            let task = preempted.pop()?;
            if !waits_here(task.get()) {
                continue;
            }
            let cpu = worker.cpu();
            let removed = self.locked(domain, cpu, &domain.rng).remove(task.get().id())?;
            return Some(removed.commit(&self.call(domain), CpuId(cpu as u16)));
        }
    }

    /// Puts `future`, whose poll has returned no value, where it belongs: into the queue if it was woken meanwhile. The
    /// lock of `domain`, the worker's, is held.
    #[inline(always)]
    fn put_back(&self, domain: &Domain<P>, worker: &Worker, future: HeaderRef) {
        let (entity, state) = (future.entity().get(), &future.get().state);
        // Must precede the end of the poll: after it, a waker may write these.
        entity.set_run(Run::Absent);
        entity.home.store(domain.index, Ordering::Relaxed);
        let yields = state.is_woken_by_itself();
        if !yields {
            // Before anyone can enqueue it elsewhere.
            self.locked(domain, worker.cpu(), &domain.rng).block(entity.id());
        }
        if state.end_poll() {
            let why = if yields { Enqueue::Yield } else { Enqueue::Wakeup };
            self.enqueue(domain, worker.cpu(), entity, why);
        }
    }

    /// Begins the life of `task`, which has a number, on the CPU of the caller's `worker`, or on another if that is not
    /// this runtime's.
    #[inline]
    fn begin_life(&self, task: EntityRef, worker: Option<&Worker>, attrs: TaskAttrs) {
        let cpu = worker.map_or_else(|| self.core.next_cpu(), |w| w.cpu());
        task.get().cpu.store(cpu as u32, Ordering::Relaxed);
        self.slots.all()[task.get().id().index()].set_attrs(attrs);
        match worker {
            Some(w) => w.stats.spawned.add(1),
            None => self.core.telemetry.others().spawned.add_shared(1),
        }
    }

    /// Makes the first carriers.
    #[cold]
    fn make_carriers(&'static self) -> io::Result<()> {
        for domain in &self.domains {
            self.make_carriers_of(domain)?;
        }
        self.has_carriers.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes carriers until `domain` has as many as it needs.
    fn make_carriers_of(&'static self, domain: &Domain<P>) -> io::Result<()> {
        loop {
            domain.lock();
            // SAFETY: the lock is held.
            let upkeep = unsafe { domain.carriers() }.upkeep();
            domain.unlock();
            if upkeep != Upkeep::Make {
                return Ok(());
            }
            let carrier = carrier::make(self, CARRIER_CLASS)?;
            domain.lock();
            // SAFETY: as above.
            unsafe { domain.carriers() }.add(carrier);
            domain.unlock();
        }
    }

    /// Ends a carrier that was free: it runs as a thread with nothing to do.
    pub(super) fn end_carrier(&'static self, carrier: TaskRef) {
        // Without a number it stays, and may be used later.
        if self.admit(carrier, TaskAttrs::default()).is_ok() {
            let has_ended = carrier.get().end.detach(|| ());
            debug_assert!(!has_ended, "it has not run");
            self.start(carrier.get().entity());
        }
    }

    /// Returns whether the calling task may be preempted: a poll keeps its stack, and only so many may.
    fn may_preempt(&self, task: &Task, worker: &Worker) -> bool {
        if task.is_thread() || task.was_preempted.get() {
            return true;
        }
        let preempted = &self.core.preempted_polls;
        if preempted.load(Ordering::Relaxed) >= self.core.settings.max_preempted_polls {
            worker.stats.polls_kept.add(1);
            return false;
        }
        preempted.fetch_add(1, Ordering::Relaxed);
        task.was_preempted.set(true);
        true
    }

    /// Returns futures' memory to the pool, and their slots to this runtime.
    #[cold]
    fn surrender_futures(&self, class: u8, futures: impl Iterator<Item = HeaderRef>) {
        let give = |future: &HeaderRef| {
            let entity = future.entity().get();
            let id = entity.id();
            entity.disown();
            self.slots.give(id);
        };
        slab::give(class, futures.inspect(give));
    }

    /// Returns stacks to the global pool, and their slots to this runtime.
    #[cold]
    fn surrender(&self, class: u8, tasks: impl Iterator<Item = TaskRef>) {
        pool::give(
            class,
            tasks.inspect(|task| {
                let id = task.get().id();
                task.get().disown();
                self.slots.give(id);
            }),
        );
    }
}
