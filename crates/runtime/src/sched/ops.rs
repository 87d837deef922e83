//! The operations of a scheduler.

use super::{Next, Scheduler, Shared};
use crate::core_state::Core;
use crate::domain::Domain;
use crate::join;
use crate::pool;
use crate::task::{Run, Task, TaskRef};
use crate::worker::{After, Remote, Worker};
use heddle_core::{Enqueue, Model, Ns, Policy, Resched, Rng, TaskAttrs, TaskSlot};
use std::io;
use std::sync::atomic::{Ordering, fence};

impl<P: Policy> Scheduler for Shared<P> {
    fn core(&self) -> &Core {
        &self.core
    }

    fn prepare(&'static self, class: u8, attrs: TaskAttrs) -> io::Result<TaskRef> {
        let worker = Worker::here().filter(|w| self.core.owns(w));
        let cached = worker.and_then(|w| w.cache().take(class));
        let task = cached.map_or_else(|| pool::take(class), Ok)?;
        let this: &'static dyn Scheduler = self;
        match task.get().owner() {
            Some((owner, _)) if std::ptr::addr_eq(owner, this) => {}
            _ => {
                let id = self.slots.take()?;
                task.get().adopt(this, id);
                self.slots.all()[id.index()].host.set(task.addr() as u64);
            }
        }
        task.get().reset();
        let cpu = worker.map_or_else(|| self.core.next_cpu(), |w| w.cpu());
        task.get().cpu.store(cpu as u32, Ordering::Relaxed);
        self.slots.all()[task.get().id().index()].set_attrs(attrs);
        match worker {
            Some(w) => w.stats.spawned.add(1),
            None => drop(self.core.spawned_outside.fetch_add(1, Ordering::Relaxed)),
        }
        Ok(task)
    }

    fn start(&'static self, task: TaskRef) {
        self.core.recorder.name(task.get());
        let cpu = task.get().cpu.load(Ordering::Relaxed) as usize;
        self.driver(cpu, &Rng::new(0)).init(task.get().id());
        self.place(task, Enqueue::New);
    }

    fn enqueue_woken(&'static self, task: TaskRef) {
        self.place(task, Enqueue::Wakeup);
    }

    #[inline]
    fn yield_now(&'static self, task: &'static Task) -> Option<Next> {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        self.enqueue(domain, worker.cpu(), task, Enqueue::Yield);
        let next = self.pick_directly(domain, worker);
        if next.is_some_and(|n| std::ptr::eq(n.get(), task)) {
            self.begin_turn(worker);
            domain.unlock();
            return None;
        }
        self.free_others(domain);
        Some(self.give_way(domain, worker, next, After::Unlock))
    }

    fn park(&'static self, task: &'static Task) -> Option<Next> {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        // Before the announcement: from then on a waker may write these.
        task.set_run(Run::Absent);
        task.home.store(domain.index, Ordering::Relaxed);
        if !task.wake.begin_park() {
            task.set_run(Run::Running);
            task.wake.finish_park();
            domain.unlock();
            return None;
        }
        self.locked(domain, worker.cpu(), &domain.rng).block(task.id());
        let next = self.pick_directly(domain, worker);
        if next.is_some_and(|n| std::ptr::eq(n.get(), task)) {
            // Woken meanwhile, and its turn.
            self.begin_turn(worker);
            task.wake.finish_park();
            domain.unlock();
            return None;
        }
        self.free_others(domain);
        Some(self.give_way(domain, worker, next, After::Park(TaskRef::new(task))))
    }

    fn preempt(&'static self, task: &'static Task) -> Next {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        worker.stats.preemptions.add(1);
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        self.enqueue(domain, worker.cpu(), task, Enqueue::Preempted);
        self.free_others(domain);
        // Through the loop: new input comes before preempted work (Aspen, section 3.2).
        worker.poll_first.set(true);
        let next = self.give_way(domain, worker, None, After::Unlock);
        if P::MODEL == Model::Central {
            // What made way waits now, and others may have outlived their quanta.
            self.hasten(worker.cpu());
        }
        next
    }

    fn look_around(&'static self, task: &'static Task) -> Option<Next> {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        let core = &self.core;
        if !core.has_dispatcher && (core.timers.next() != Ns::MAX || core.poller.is_ready()) {
            core.take_inputs(Some(Ns::ZERO));
        }
        let waiting = self.is_work_waiting(worker.cpu());
        let ran = worker.ran();
        let answer = if waiting { self.tick(worker, ran) } else { None };
        match answer {
            Some(Resched::Now) => return Some(self.preempt(task)),
            Some(Resched::After(more)) => worker.look_after(more),
            Some(Resched::Never) => worker.look_no_more(),
            // The queue is in use.
            None if waiting => worker.look_after(Ns(ran.0 / 4)),
            None => {
                worker.nothing_waits();
                fence(Ordering::SeqCst);
                if self.is_work_waiting(worker.cpu()) {
                    worker.hasten_from_afar();
                }
            }
        }
        None
    }

    fn exit(&'static self, task: &'static Task) -> Next {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        worker.stats.exited.add(1);
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        task.set_run(Run::Absent);
        self.locked(domain, worker.cpu(), &domain.rng).exit(task.id());
        let woken = self.wake_joiner(task, domain, worker.cpu());
        let next = self.pick_directly(domain, worker);
        self.free_others(domain);
        self.give_way(domain, worker, next, After::Exit { task: TaskRef::new(task), woken })
    }

    fn recycle(&'static self, task: TaskRef) {
        let class = task.get().stack.class;
        match Worker::here().filter(|w| self.core.owns(w)) {
            Some(w) if w.cache().keep(task) => self.surrender(class, w.cache().surplus(class)),
            Some(_) => {}
            None => self.surrender(class, [task].into_iter()),
        }
    }

    fn serve(&'static self, worker: &'static Worker) {
        while worker.is_attached() {
            if self.core.is_stopping() && (self.core.is_over() || self.is_drained_for(worker.cpu()))
            {
                break;
            }
            if worker.poll_first.replace(false) {
                self.core.take_inputs(Some(Ns::ZERO));
            }
            let cpu = worker.cpu();
            let domain = self.domain_of(cpu);
            // Before the look into any queue: what is placed after it is news.
            let seen = self.core.placements.load(Ordering::Acquire);
            domain.lock();
            if let Some(task) = self.pick(domain, worker) {
                self.go(domain, worker, task);
                continue;
            }
            domain.unlock();
            if self.core.take_inputs(Some(Ns::ZERO)) {
                continue;
            }
            if let Some(at_most) = self.balance(worker) {
                worker.alarm.off();
                let is_news = || self.core.placements.load(Ordering::Acquire) != seen;
                self.core.park(worker, at_most, || self.has_work(cpu), is_news);
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

    fn abandon_tasks(&self) {
        let slots = self.slots.all();
        // Room from the start: nothing is allocated under a lock that workers take.
        let mut waiters = Vec::with_capacity(slots.len());
        self.slots.hold(|| {
            waiters.extend(tasks_of(slots).filter_map(|task| task.get().end.abandon()));
        });
        waiters.into_iter().for_each(join::wake_waiter);
    }

    fn refuse_lost_tasks(&self) {
        let is_lost = |task: &TaskRef| {
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

/// The tasks of the slots that are in use. No slot changes hands meanwhile.
fn tasks_of<T>(slots: &[TaskSlot<T>]) -> impl Iterator<Item = TaskRef> {
    let hosts = slots.iter().map(|slot| slot.host.get() as usize).filter(|&host| host != 0);
    // SAFETY: `prepare` put it there, and the block is this runtime's until its slot is given back.
    hosts.map(|host| unsafe { TaskRef::from_addr(host) })
}

impl<P: Policy> Shared<P> {
    /// Whether nothing waits for the CPU with this index.
    fn is_drained_for(&self, cpu: usize) -> bool {
        self.domain_of(cpu).len() == 0 && self.core.cpus[cpu].mailbox.load(Ordering::Acquire) == 0
    }

    /// Gives stacks to the global pool, and their slots back to this runtime.
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
