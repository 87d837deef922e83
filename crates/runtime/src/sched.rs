//! The scheduler: what happens to tasks, under any policy.
//!
//! The one rule: a run queue's lock is taken by the context that leaves the CPU and released by the one that comes next
//! ([`After`]). So whoever finds a task in a queue finds it off its stack, and nobody ever waits for a flag.

use crate::core_state::{Core, Placed};
use crate::domain::Domain;
use crate::join;
use crate::pool;
use crate::slots::SlotTable;
use crate::task::{Run, Task, TaskRef};
use crate::worker::{After, BUDGET, CACHE_BATCH, Worker};
use heddle_arch::{PreemptCount, switch};
use heddle_core::{
    CpuId, Cx, Enqueue, Host, Model, Ns, Policy, Resched, Rng, TaskAttrs, TaskId, Topology,
};
use std::io;
use std::sync::atomic::Ordering;

/// What the rest of the runtime asks of a scheduler, whatever its policy. Preemption is off in all calls; where a method
/// wants the calling task, it is called in that task.
pub(crate) trait Scheduler: Send + Sync {
    /// The parts that do not depend on the policy.
    fn core(&self) -> &Core;
    /// A stack with a slot and attributes for a task to come.
    fn prepare(&'static self, class: u8, attrs: TaskAttrs) -> io::Result<TaskRef>;
    /// A prepared task may run.
    fn start(&'static self, task: TaskRef);
    /// A woken task may run: [`heddle_sys::sync::WakeWord::wake`] said that it is the caller's to enqueue.
    fn enqueue_woken(&'static self, task: TaskRef);
    /// The calling task lets others run.
    fn yield_now(&'static self, task: &'static Task);
    /// The calling task sleeps until it is woken.
    fn park(&'static self, task: &'static Task);
    /// The calling task goes back to the queue because its time is up.
    fn preempt(&'static self, task: &'static Task);
    /// The calling task has ended; the next context tells whoever waits for that.
    fn exit(&'static self, task: &'static Task) -> !;
    /// Nobody needs the block of an ended task any more.
    fn recycle(&'static self, task: TaskRef);
    /// The loop of a kernel thread, as long as it serves a CPU.
    fn serve(&'static self, worker: &'static Worker);
    /// Asks the policy whether the task that `worker` runs has to go after `ran`; `None` if the queue is in use.
    fn tick(&self, worker: &Worker, ran: Ns) -> Option<Resched>;
    /// Takes the CPU from `worker` if it still runs its task number `generation`; true if so. Under the queue's lock, so
    /// that the worker finds out before it can touch the queue.
    fn detach(&self, worker: &Worker, generation: u64) -> bool;
    /// Whether anything waits for the CPU with this index.
    fn is_work_waiting(&self, cpu: usize) -> bool;
    /// Lengths of all run queues.
    fn queue_lengths(&self) -> Vec<usize>;
    /// The context on this worker that was switched to completes the switch.
    fn finish_switch(&'static self);
}

/// A scheduler under policy `P`.
pub(crate) struct Shared<P: Policy> {
    core: Core,
    policy: P,
    slots: SlotTable<P::Task>,
    domains: Box<[Domain<P>]>,
    /// The policy preempts, so dispatches are time-stamped for the ticker.
    timed: bool,
}

impl<P: Policy> Host for Shared<P> {
    fn now(&self) -> Ns {
        heddle_sys::clock::now()
    }

    fn topology(&self) -> Topology<'_> {
        Topology::new(&self.core.topology)
    }

    fn queue_len(&self, cpu: CpuId) -> usize {
        self.domain_of(cpu.index()).len()
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.core.idle.contains(cpu.index())
    }

    fn any_idle(&self) -> bool {
        !self.core.idle.is_empty()
    }
}

impl<P: Policy> Shared<P> {
    pub(crate) fn new(core: Core, policy: P) -> io::Result<Self> {
        let domains = match P::MODEL {
            Model::PerCpu => core.cpus.len(),
            Model::Central => 1,
        };
        Ok(Shared {
            slots: SlotTable::new()?,
            domains: (0..domains as u32).map(|i| Domain::new(i, policy.queue())).collect(),
            timed: policy.quantum().is_some(),
            core,
            policy,
        })
    }

    #[inline]
    fn domain_of(&self, cpu: usize) -> &Domain<P> {
        match P::MODEL {
            Model::PerCpu => &self.domains[cpu],
            Model::Central => &self.domains[0],
        }
    }

    #[inline]
    fn cx<'a>(&'a self, cpu: usize, rng: &'a Rng) -> Cx<'a, P::Task> {
        Cx::new(CpuId(cpu as u16), self.slots.all(), self, rng)
    }

    fn task_of(&self, id: TaskId) -> TaskRef {
        // SAFETY: `prepare` stored the address before the id could reach the policy.
        unsafe { TaskRef::from_addr(self.slots.all()[id.index()].host.get() as usize) }
    }

    /// Puts a task that is off its stack into `domain`, whose lock is held.
    #[inline(always)]
    fn enqueue(&self, domain: &Domain<P>, cpu: usize, task: &Task, why: Enqueue) {
        task.home.store(domain.index, Ordering::Relaxed);
        task.set_run(Run::Queued);
        // SAFETY: the lock is held.
        let queue = unsafe { domain.queue() };
        self.policy.enqueue(&self.cx(cpu, &domain.rng), queue, task.id(), why);
        domain.publish(self.policy.len(queue));
    }

    /// Takes what others left for `domain`, whose lock is held.
    #[inline(always)]
    fn drain_inbox(&self, domain: &Domain<P>, cpu: usize) {
        if !domain.inbox.is_empty() {
            domain.inbox.take(|node| {
                // SAFETY: only tasks are left in inboxes.
                let task = unsafe { TaskRef::from_addr(node as usize) }.get();
                let why =
                    if task.run() == Run::Absent as u8 { Enqueue::Wakeup } else { Enqueue::New };
                self.enqueue(domain, cpu, task, why);
            });
        }
    }

    /// The task that the CPU shall run next, by the policy. The lock is held.
    #[inline(always)]
    fn pick(&self, domain: &Domain<P>, cpu: usize) -> Option<TaskRef> {
        self.drain_inbox(domain, cpu);
        // SAFETY: the lock is held.
        let queue = unsafe { domain.queue() };
        let id = self.policy.dequeue(&self.cx(cpu, &domain.rng), queue)?;
        domain.publish(self.policy.len(queue));
        Some(self.commit(id, domain))
    }

    /// Makes a proposal real. A proposal that is not queued here is a bug of the policy, and going on would run a task
    /// on two CPUs.
    #[inline(always)]
    fn commit(&self, id: TaskId, domain: &Domain<P>) -> TaskRef {
        let task = self.task_of(id);
        let queued_here = task.get().run() == Run::Queued as u8
            && task.get().home.load(Ordering::Relaxed) == domain.index
            && task.get().id() == id;
        if !queued_here {
            refuse(P::NAME, id);
        }
        task.get().set_run(Run::Running);
        task
    }

    /// Like [`Shared::pick`], for a task that leaves the CPU: nothing if the worker's loop has to run first.
    #[inline(always)]
    fn pick_directly(&self, domain: &Domain<P>, worker: &Worker) -> Option<TaskRef> {
        let budget = worker.budget.get() - 1;
        worker.budget.set(budget);
        if budget == 0 {
            worker.budget.set(BUDGET);
            if self.core.has_inputs() {
                worker.poll_first.set(true);
                return None;
            }
        }
        if !worker.attached.load(Ordering::Relaxed) {
            return None;
        }
        self.pick(domain, worker.cpu())
    }

    /// Notes what the worker runs from now on.
    #[inline(always)]
    fn dispatch(&self, worker: &Worker, task: Option<TaskRef>) {
        let address = task.map_or(std::ptr::null_mut(), |t| t.addr() as *mut Task);
        worker.current.store(address, Ordering::Relaxed);
        worker.generation.store(worker.generation.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if let Some(task) = task {
            task.get().cpu.store(worker.cpu() as u32, Ordering::Relaxed);
            worker.stats.switches.add(1);
            if self.timed {
                worker.started.store(heddle_arch::rdtsc(), Ordering::Relaxed);
            }
        }
    }

    /// Leaves the calling task for `next`, or for the worker's loop. The lock of the worker's queue is held; `after` says
    /// what becomes of the task. Returns when the task runs again, on whatever worker, with preemption off as deep as before.
    #[inline(always)]
    fn leave(
        &'static self,
        worker: &'static Worker,
        task: &Task,
        next: Option<TaskRef>,
        after: After,
    ) {
        // SAFETY: a task runs on a worker.
        let depth = unsafe { PreemptCount::depth() };
        self.dispatch(worker, next);
        worker.after.set(after);
        let (sp, fs) = match next {
            Some(next) => (next.get().sp.get(), next.get().fs),
            None => (worker.loop_sp.get(), worker.loop_fs.get()),
        };
        // SAFETY: `sp` was saved by a switch or is a fresh frame, and belongs to a context that is off CPU: a task that was
        // queued under the lock, or the loop of this very worker. The lock is held until `finish_switch`.
        unsafe { switch(task.sp.as_ptr(), sp, fs) };
        self.finish_switch();
        // SAFETY: as above, perhaps another worker.
        unsafe { PreemptCount::set_depth(depth) };
    }

    /// Runs `task` from the worker's loop, with the lock held. Returns when some task leaves for the loop.
    fn go(&'static self, worker: &'static Worker, task: TaskRef) {
        self.dispatch(worker, Some(task));
        worker.after.set(After::Unlock);
        // SAFETY: as in `leave`.
        unsafe { switch(worker.loop_sp.as_ptr(), task.get().sp.get(), task.get().fs) };
        self.finish_switch();
        // SAFETY: this is the loop of the worker, which is not preempted.
        unsafe { PreemptCount::set_depth(1) };
    }

    /// Puts a new or woken task where the policy wants it, and sees to it that somebody runs it. Preemption is off.
    fn place(&'static self, task: TaskRef, why: Enqueue) {
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
        let local = worker.is_some_and(|w| w.cpu() == cpu);
        self.core.kick(Placed { cpu, local, preempt }, P::MODEL, P::WORK_CONSERVING);
    }

    /// Asks the policy where `task` shall queue, if there is a choice.
    #[inline]
    fn choose(&self, task: TaskRef, home: usize, from: usize, worker: Option<&Worker>) -> Placed {
        if self.core.cpus.len() == 1 || task.get().wake.is_on_cpu() {
            return Placed { cpu: home, local: false, preempt: false };
        }
        let outside = Rng::new(task.addr() as u64);
        let rng = worker.map_or(&outside, |w| &w.rng);
        let place = self.policy.place(&self.cx(from, rng), task.get().id(), CpuId(home as u16));
        Placed { cpu: place.cpu.index(), local: false, preempt: place.preempt }
    }

    /// Looks for work in other queues; true if the worker ran some.
    fn balance(&'static self, worker: &'static Worker) -> bool {
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

    fn steal_from(&self, victim: usize, cpu: usize, worker: &Worker) -> Option<TaskRef> {
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
    fn has_work(&self, cpu: usize) -> bool {
        let elsewhere = || P::WORK_CONSERVING && self.domains.iter().any(|d| d.len() != 0);
        self.domain_of(cpu).len() != 0
            || self.core.is_stopping()
            || self.core.timers.next() <= heddle_sys::clock::now()
            || elsewhere()
    }
}

#[cold]
fn refuse(policy: &str, id: TaskId) -> ! {
    // Unwinding through the scheduler would leave locks held.
    eprintln!(
        "heddle: policy `{policy}` proposed {id}, which is not in that run queue; this is a bug in the policy"
    );
    std::process::abort()
}

impl<P: Policy> Scheduler for Shared<P> {
    fn core(&self) -> &Core {
        &self.core
    }

    fn prepare(&'static self, class: u8, attrs: TaskAttrs) -> io::Result<TaskRef> {
        let worker = Worker::here().filter(|w| self.core.owns(w));
        let cached = worker.filter(|_| class == pool::DEFAULT_CLASS).and_then(|w| {
            if w.cache().is_empty() {
                pool::take_free(class, CACHE_BATCH, w.cache());
            }
            w.cache().pop()
        });
        let task = cached.map_or_else(|| pool::take(class), Ok)?;
        let this: &'static dyn Scheduler = self;
        match task.get().owner() {
            Some((owner, _)) if std::ptr::addr_eq(owner, this) => {}
            _ => {
                let id = self.slots.take()?;
                task.get().adopt(Some((this, id)));
                self.slots.all()[id.index()].host.set(task.addr() as u64);
            }
        }
        task.get().reset();
        let cpu = worker.map_or_else(|| self.core.next_cpu(), Worker::cpu);
        task.get().cpu.store(cpu as u32, Ordering::Relaxed);
        self.slots.all()[task.get().id().index()].set_attrs(attrs);
        match worker {
            Some(w) => w.stats.spawned.add(1),
            None => drop(self.core.spawned_outside.fetch_add(1, Ordering::Relaxed)),
        }
        Ok(task)
    }

    fn start(&'static self, task: TaskRef) {
        let outside = Rng::new(0);
        self.policy.task_init(
            &self.cx(task.get().cpu.load(Ordering::Relaxed) as usize, &outside),
            task.get().id(),
        );
        self.place(task, Enqueue::New);
    }

    fn enqueue_woken(&'static self, task: TaskRef) {
        self.place(task, Enqueue::Wakeup);
    }

    #[inline]
    fn yield_now(&'static self, task: &'static Task) {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        self.enqueue(domain, worker.cpu(), task, Enqueue::Yield);
        let next = self.pick_directly(domain, worker);
        if next.is_some_and(|n| std::ptr::eq(n.get(), task)) {
            domain.unlock();
            return;
        }
        self.leave(worker, task, next, After::Unlock);
    }

    fn park(&'static self, task: &'static Task) {
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
            return;
        }
        // SAFETY: the lock is held.
        let queue = unsafe { domain.queue() };
        self.policy.block(&self.cx(worker.cpu(), &domain.rng), queue, task.id());
        let next = self.pick_directly(domain, worker);
        if next.is_some_and(|n| std::ptr::eq(n.get(), task)) {
            // Woken meanwhile, and its turn.
            task.wake.finish_park();
            domain.unlock();
            return;
        }
        self.leave(worker, task, next, After::Park(TaskRef::new(task)));
    }

    fn preempt(&'static self, task: &'static Task) {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        worker.stats.preemptions.add(1);
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        self.enqueue(domain, worker.cpu(), task, Enqueue::Preempted);
        // Through the loop: new input comes before preempted work (Aspen, section 3.2).
        worker.poll_first.set(true);
        self.leave(worker, task, None, After::Unlock);
    }

    fn exit(&'static self, task: &'static Task) -> ! {
        // SAFETY: the caller is a task with preemption off.
        let worker = unsafe { Worker::current() };
        worker.stats.exited.add(1);
        let domain = self.domain_of(worker.cpu());
        domain.lock();
        task.set_run(Run::Absent);
        self.policy.task_exit(&self.cx(worker.cpu(), &domain.rng), task.id());
        let woken = self.wake_joiner(task, domain, worker.cpu());
        let next = self.pick_directly(domain, worker);
        self.leave(worker, task, next, After::Exit { task: TaskRef::new(task), woken });
        unreachable!("a task that has ended ran again")
    }

    fn recycle(&'static self, task: TaskRef) {
        task.get().set_name(None);
        let class = task.get().stack.class;
        match Worker::here().filter(|w| self.core.owns(w) && class == pool::DEFAULT_CLASS) {
            Some(w) if w.cache().len() < 2 * CACHE_BATCH => w.cache().push(task),
            Some(w) => {
                let surplus = w.cache().split_off(CACHE_BATCH);
                self.surrender(class, surplus.into_iter().chain([task]));
            }
            None => self.surrender(class, [task].into_iter()),
        }
    }

    fn serve(&'static self, worker: &'static Worker) {
        while worker.is_attached() && !self.core.is_stopping() {
            if worker.poll_first.replace(false) {
                self.core.take_inputs(Some(Ns::ZERO));
            }
            let cpu = worker.cpu();
            let domain = self.domain_of(cpu);
            domain.lock();
            if let Some(task) = self.pick(domain, cpu) {
                self.go(worker, task);
                continue;
            }
            domain.unlock();
            if self.core.take_inputs(Some(Ns::ZERO)) || self.balance(worker) {
                continue;
            }
            self.core.rest(worker, || self.has_work(cpu));
        }
    }

    fn tick(&self, worker: &Worker, ran: Ns) -> Option<Resched> {
        let domain = self.domain_of(worker.cpu());
        if !domain.try_lock() {
            return None;
        }
        self.drain_inbox(domain, worker.cpu());
        // Under the lock the task cannot leave the CPU, so it is still the one that ran.
        let task = worker.current.load(Ordering::Relaxed);
        // SAFETY: null or a block, and blocks are never unmapped.
        let answer = unsafe { task.as_ref() }.map_or(Resched::Never, |task| {
            let cx = self.cx(worker.cpu(), &domain.rng);
            // SAFETY: the lock is held.
            self.policy.tick(&cx, unsafe { domain.queue() }, task.id(), ran)
        });
        domain.unlock();
        Some(answer)
    }

    fn detach(&self, worker: &Worker, generation: u64) -> bool {
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

    fn queue_lengths(&self) -> Vec<usize> {
        self.domains.iter().map(Domain::len).collect()
    }

    #[inline(always)]
    fn finish_switch(&'static self) {
        // SAFETY: called right after a switch, with preemption off.
        let worker = unsafe { Worker::current() };
        let domain = self.domain_of(worker.cpu());
        match worker.after.get() {
            After::Unlock => domain.unlock(),
            After::Park(task) => {
                task.get().wake.finish_park();
                domain.unlock();
            }
            After::Exit { task, woken } => {
                let found = join::publish(task, woken);
                domain.unlock();
                join::tell(task, found);
            }
        }
    }
}

impl<P: Policy> Shared<P> {
    /// Makes the task that waits for the end of `task` runnable already, if it belongs to this very queue: it cannot run
    /// before the lock is released, and by then `task` is off its stack. True if so.
    #[inline]
    fn wake_joiner(&self, task: &Task, domain: &Domain<P>, cpu: usize) -> bool {
        let joiner =
            join::waiting_task(task).filter(|j| self.core.cpus.len() == 1 && self.is_mine(j.get()));
        let Some(joiner) = joiner.filter(|j| !j.get().wake.is_on_cpu()) else { return false };
        if joiner.get().wake.wake() {
            self.enqueue(domain, cpu, joiner.get(), Enqueue::Wakeup);
        }
        true
    }

    /// Whether `task` belongs to this runtime.
    fn is_mine(&self, task: &Task) -> bool {
        std::ptr::addr_eq(task.sched(), self)
    }

    /// Gives stacks to the global pool, and their slots back to this runtime.
    fn surrender(&self, class: u8, tasks: impl Iterator<Item = TaskRef>) {
        pool::give(
            class,
            tasks.inspect(|task| {
                let id = task.get().id();
                task.get().adopt(None);
                self.slots.give(id);
            }),
        );
    }
}
