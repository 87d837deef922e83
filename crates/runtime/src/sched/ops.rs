//! What tasks ask of the scheduler.

use super::Shared;
use crate::engine::Engine;
use crate::join;
use crate::liveness::Owned;
use crate::pool;
use crate::take_over;
use crate::task::{Liveness, Next, Run, Scheduler, Task, TaskRef};
use crate::timers::Timer;
use crate::worker::{After, Worker};
use heddle_core::{Class, Enqueue, Model, Ns, Policy, Resched, Rng, TaskAttrs};
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
        Ok(())
    }

    fn set_class(&self, task: TaskRef, class: Class) {
        let slot = &self.slots.all()[task.get().id().index()];
        slot.set_attrs(TaskAttrs { class, ..slot.attrs() });
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
        // Must precede the announcement: after it, a waker may write these.
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
            // The task was woken meanwhile and is chosen to run.
            self.begin_turn(worker);
            task.wake.finish_park();
            domain.unlock();
            return None;
        }
        self.free_others(domain);
        Some(self.give_way(domain, worker, next, After::Park(TaskRef::new(task))))
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
        self.enqueue(domain, worker.cpu(), task, Enqueue::Preempted);
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
            && (inputs.timers.next() != Ns::MAX || inputs.poller.is_ready())
        {
            inputs.take(Some(Ns::ZERO));
        }
        let waiting = self.is_work_waiting(worker.cpu());
        let ran = worker.ran();
        if P::EXTENDS && waiting {
            worker.alarm.before_late();
        }
        let answer = if waiting { self.tick(worker, ran) } else { None };
        match answer {
            Some(Resched::Now) => {
                worker.alarm.not_late();
                return Some(self.preempt(task));
            }
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

    fn exit(&'static self, task: &'static Task) -> Next {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        worker.stats.exited.add(1);
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        task.set_run(Run::Absent);
        self.locked(domain, worker.cpu(), &domain.rng).exit(task.id());
        let woken = self.wake_joiner_here(task, domain, worker.cpu());
        let next = self.pick_directly(domain, worker);
        self.free_others(domain);
        self.give_way(domain, worker, next, After::Exit { task: TaskRef::new(task), woken })
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
