//! The run queues of a runtime and what may be done to them under their locks.

use crate::core_state::Core;
use crate::domain::Domain;
use crate::preempt::Mechanism;
use crate::slots::SlotTable;
use crate::task::{Run, Task, TaskRef};
use crate::trace::What;
use crate::worker::Worker;
use heddle_core::{CpuId, Cx, Enqueue, Host, Model, Ns, Policy, Rng, TaskId, Topology};
use std::io;
use std::sync::atomic::Ordering;

/// A scheduler under policy `P`.
pub(crate) struct Shared<P: Policy> {
    pub(super) core: Core,
    pub(super) policy: P,
    pub(super) slots: SlotTable<P::Task>,
    pub(super) domains: Box<[Domain<P>]>,
    /// The policy's shortest quantum in ticks of the time stamp counter; if it preempts, dispatches are time-stamped.
    pub(super) quantum_ticks: Option<u64>,
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
        self.core.parking.idle().contains(cpu.index())
    }

    fn any_idle(&self) -> bool {
        !self.core.parking.idle().is_empty()
    }
}

impl<P: Policy> Shared<P> {
    pub(crate) fn new(core: Core, policy: P) -> io::Result<Self> {
        let quantum = policy.quantum().filter(|_| core.mechanism != Mechanism::None);
        let domains = match P::MODEL {
            Model::PerCpu => core.cpus.len(),
            Model::Central => 1,
        };
        Ok(Shared {
            slots: SlotTable::new()?,
            domains: (0..domains as u32).map(|i| Domain::new(i, policy.queue())).collect(),
            quantum_ticks: quantum.map(heddle_sys::clock::ns_to_ticks),
            core,
            policy,
        })
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

    pub(super) fn task_of(&self, id: TaskId) -> TaskRef {
        // SAFETY: `prepare` stored the address before the id could reach the policy.
        unsafe { TaskRef::from_addr(self.slots.all()[id.index()].host.get() as usize) }
    }

    /// Puts a task that is off its stack into `domain`, whose lock is held.
    #[inline(always)]
    pub(super) fn enqueue(&self, domain: &Domain<P>, cpu: usize, task: &Task, why: Enqueue) {
        task.home.store(domain.index, Ordering::Relaxed);
        task.set_run(Run::Queued);
        if let Some(what) = What::queued(why) {
            self.core.recorder.note(cpu, task, what);
        }
        // SAFETY: the lock is held.
        let queue = unsafe { domain.queue() };
        self.policy.enqueue(&self.cx(cpu, &domain.rng), queue, task.id(), why);
        domain.publish(self.policy.len(queue));
    }

    /// Takes what others left for `domain`, whose lock is held.
    #[inline(always)]
    pub(super) fn drain_inbox(&self, domain: &Domain<P>, cpu: usize) {
        if !domain.inbox.is_empty() {
            domain.inbox.take(|node| {
                // SAFETY: only tasks are left in inboxes.
                let task = unsafe { TaskRef::from_addr(node as usize) }.get();
                let why = if task.run() == Run::Absent { Enqueue::Wakeup } else { Enqueue::New };
                self.enqueue(domain, cpu, task, why);
            });
        }
    }

    /// The task that the worker shall run next, by the policy. The lock is held.
    #[inline(always)]
    pub(super) fn pick(&self, domain: &Domain<P>, worker: &Worker) -> Option<TaskRef> {
        if P::MODEL == Model::Central && self.core.has_dispatcher {
            return self.core.collect(worker);
        }
        let cpu = worker.cpu();
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
    pub(super) fn commit(&self, id: TaskId, domain: &Domain<P>) -> TaskRef {
        let task = self.task_of(id);
        let queued_here = task.get().run() == Run::Queued
            && task.get().home.load(Ordering::Relaxed) == domain.index
            && task.get().id() == id;
        if !queued_here {
            refuse(P::NAME, id);
        }
        task.get().set_run(Run::Running);
        task
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
