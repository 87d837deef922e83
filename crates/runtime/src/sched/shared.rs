//! A runtime's run queues and the operations allowed under their locks.

use crate::core_state::Core;
use crate::domain::Domain;
use crate::engine::{Engine, EngineRef};
use crate::slots::SlotTable;
use crate::task::{Entity, EntityRef, Liveness, Run, Scheduler};
use crate::worker::Worker;
use heddle_core::driver::{Driver, Hook, Rule, RunQueue, TurnTime};
use heddle_core::{
    CpuId, Cx, Enqueue, Event, EventKind, Host, Layer, Model, Ns, Policy, Rng, TaskId, Topology,
};
use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A scheduler under policy `P`.
pub(crate) struct Shared<P: Policy> {
    pub(super) core: Core,
    pub(super) this: OnceLock<EngineRef>,
    pub(super) policy: P,
    pub(super) slots: SlotTable<P::Task>,
    pub(super) domains: Box<[Domain<P>]>,
    /// Each CPU's turns, kept if the policy asks how long tasks wait.
    pub(super) turns: Box<[Turns]>,
    /// Whether each run queue has carriers: made with the first future.
    pub(super) has_carriers: AtomicBool,
    /// The policy's shortest quantum in time stamp counter ticks; if the policy preempts, dispatches are time-stamped.
    pub(super) quantum_ticks: Option<u64>,
}

/// The turns of a CPU, written by it at each dispatch, on their own cache lines.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Turns(pub(super) TurnTime);

impl<P: Policy> Host for Shared<P> {
    fn now(&self) -> Ns {
        heddle_sys::clock::now()
    }

    fn topology(&self) -> Topology<'_> {
        Topology::new(&self.core.settings.topology)
    }

    fn queue_len(&self, cpu: CpuId) -> usize {
        self.domain_of(cpu.index()).len()
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.core.parking.idle().contains(cpu.index())
    }

    fn any_idle(&self) -> bool {
        !self.core.parking.idle().is_empty()
    }

    fn turns(&self, cpu: CpuId) -> &TurnTime {
        &self.turns[cpu.index()].0
    }
}

/// The runtime as the hook of one call about a run queue.
pub(super) struct Call<'a, P: Policy> {
    shared: &'a Shared<P>,
    domain: &'a Domain<P>,
}

impl<P: Policy> Hook for Call<'_, P> {
    type Claimed = EntityRef;

    #[inline(always)]
    fn publish(&self, len: usize) {
        self.domain.publish(len);
    }

    #[inline(always)]
    fn claim(&self, id: TaskId) -> Option<EntityRef> {
        let task = self.shared.task_of(id)?;
        let queued_here = task.get().run() == Run::Queued
            && task.get().home.load(Ordering::Relaxed) == self.domain.index
            && task.get().id() == id;
        queued_here.then(|| task.get().set_run(Run::Running))?;
        Some(task)
    }

    #[inline(always)]
    fn record(&self, cpu: CpuId, id: TaskId, kind: EventKind) {
        let event = || Event::task(Ns::ZERO, cpu, id.0, kind).of(Layer::Runtime);
        self.domain.ring.record(event);
    }

    /// Aborts: continuing would run a task on two CPUs or lose one; unwinding would leave the queue locked.
    fn broke(&self, policy: &'static str, rule: Rule) -> ! {
        heddle_sys::abort(format_args!("policy `{policy}`: {rule}; this is a fault in the policy"))
    }

    /// Aborts for the same reasons; the panic message was printed where the policy panicked.
    fn panicked(&self, policy: &'static str, call: &'static str) {
        heddle_sys::abort(format_args!(
            "policy `{policy}` panicked in `{call}`; this is a fault in the policy"
        ))
    }
}

impl<P: Policy> Shared<P> {
    pub(crate) fn new(core: Core, policy: P) -> io::Result<Self> {
        let (domains, cpus) = match P::MODEL {
            Model::PerCpu => (core.cpus.len(), 1),
            Model::Central => (1, core.cpus.len()),
        };
        let ring = |index: u32| core.telemetry.ring(index as usize);
        let domain = |index| Domain::new(index, cpus, policy.queue(), ring(index));
        Ok(Shared {
            this: OnceLock::new(),
            slots: SlotTable::new()?,
            domains: (0..domains as u32).map(domain).collect(),
            turns: match P::USES_EXPECTED_WAIT {
                true => core.cpus.iter().map(|_| Turns::default()).collect(),
                false => Box::default(),
            },
            has_carriers: AtomicBool::new(false),
            quantum_ticks: core.settings.quantum.map(heddle_sys::clock::ns_to_ticks),
            core,
            policy,
        })
    }

    /// Starts the life of a runtime with one party, the caller.
    pub(crate) fn into_engine(self) -> &'static dyn Engine {
        // SAFETY: a box is not null. It is freed by its `Liveness`, when the last party has left.
        let (shared, liveness) = unsafe {
            let shared = NonNull::new_unchecked(Box::into_raw(Box::new(self)));
            (shared.as_ref(), Liveness::new(shared as NonNull<dyn Scheduler>))
        };
        shared.core.set_liveness(liveness);
        let _ = shared.this.set(EngineRef(shared));
        shared
    }

    #[inline]
    pub(super) fn domain_of(&self, cpu: usize) -> &Domain<P> {
        match P::MODEL {
            Model::PerCpu => &self.domains[cpu],
            Model::Central => &self.domains[0],
        }
    }

    #[inline]
    pub(super) fn cx<'a>(&'a self, cpu: usize, rng: &'a Rng) -> Cx<'a, P::Task> {
        Cx::new(CpuId(cpu as u16), self.slots.all(), self, rng)
    }

    /// Returns the hook for a call about `domain`.
    #[inline(always)]
    pub(super) fn call<'a>(&'a self, domain: &'a Domain<P>) -> Call<'a, P> {
        Call { shared: self, domain }
    }

    /// Returns a call for the CPU with this index that concerns no queue's contents.
    #[inline]
    pub(super) fn driver<'a>(&'a self, cpu: usize, rng: &'a Rng) -> Driver<'a, P, Call<'a, P>> {
        let call = self.call(self.domain_of(cpu));
        Driver::new(&self.policy, self.cx(cpu, rng), call)
    }

    /// Returns the queue of `domain`, whose lock the caller holds, for the CPU with this index.
    #[inline(always)]
    pub(super) fn locked<'a>(
        &'a self,
        domain: &'a Domain<P>,
        cpu: usize,
        rng: &'a Rng,
    ) -> RunQueue<'a, P, Call<'a, P>> {
        // SAFETY: the lock is held, and each call makes this reference anew.
        let queue = unsafe { domain.queue() };
        Driver::new(&self.policy, self.cx(cpu, rng), self.call(domain)).on(queue)
    }

    /// Returns the task with this number, or `None` if no task ever had it.
    #[inline(always)]
    pub(super) fn task_of(&self, id: TaskId) -> Option<EntityRef> {
        let address = self.slots.all().get(id.index())?.host.get() as usize;
        // SAFETY: zero, or what `prepare` stored before the number could reach the policy.
        (address != 0).then(|| unsafe { EntityRef::from_addr(address) })
    }

    /// Puts a task that is off its stack into `domain`, whose lock is held.
    #[inline(always)]
    pub(super) fn enqueue(&self, domain: &Domain<P>, cpu: usize, task: &Entity, why: Enqueue) {
        task.home.store(domain.index, Ordering::Relaxed);
        task.set_run(Run::Queued);
        self.locked(domain, cpu, &domain.rng).enqueue(task.id(), why);
    }

    /// Takes the tasks that others left for `domain`, whose lock is held. Each is enqueued for the CPU for which it was
    /// left, whichever worker takes it.
    #[inline(always)]
    pub(super) fn drain_inbox(&self, domain: &Domain<P>) {
        domain.take_inbox(|node| {
            // SAFETY: only tasks are left in inboxes.
            let task = unsafe { EntityRef::from_addr(node as usize) }.get();
            let cpu = match P::MODEL {
                Model::PerCpu => domain.index,
                Model::Central => task.cpu.load(Ordering::Relaxed),
            } as usize;
            let why = if task.run() == Run::Absent { Enqueue::Wakeup } else { Enqueue::New };
            self.enqueue(domain, cpu, task, why);
        });
    }

    /// Returns the task that the worker runs next, chosen by the policy. The lock is held.
    #[inline(always)]
    pub(super) fn pick(&self, domain: &Domain<P>, worker: &Worker) -> Option<EntityRef> {
        let cpu = worker.cpu();
        if P::MODEL == Model::Central && self.core.settings.has_dispatcher {
            let task = self.core.collect(worker)?;
            self.call(domain).record(CpuId(cpu as u16), task.get().id(), EventKind::Start);
            return Some(task);
        }
        self.drain_inbox(domain);
        let task = self.locked(domain, cpu, &domain.rng).dequeue()?;
        Some(task.commit(&self.call(domain), CpuId(cpu as u16)))
    }
}
