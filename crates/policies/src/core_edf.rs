//! `core-edf`: partitioned earliest deadline first over physical cores, each of which runs one virtual
//! machine at a time.
//!
//! - **Optimises** isolation: threads of different VMs never run on hyperthreads of one core, where one
//!   could read what the other leaves in shared buffers (L1TF, MDS). Each thread is guaranteed a time
//!   budget per period, which bounds its tail latency; spare time is shared in turn.
//! - **Parameters**: `period` (default 10ms); `budget` (default 1ms, at most `period`), guaranteed to
//!   each thread in each period; `slice` (default 500us), the turn of a thread beyond its budget. The
//!   class of a task is its VM.
//! - **Complexity**: O(log n) expected to enqueue and dequeue with n threads on the core; once per
//!   period a thread is moved when its budget is renewed. A new thread looks at every core; a core
//!   without threads, at worst at every core that has some.
//! - **Source**: ghOSt, section 4.5 and Fig. 9 (one queue per core, partitioned EDF, excess time
//!   shared, preference of the NUMA node); Vanga et al., "Tableau", EuroSys 2018 (a time for each VM in
//!   each period); Abeni and Buttazzo, RTSS 1998 (when a waking thread keeps its deadline).
//!
//! # Invariants
//! - **E1** All threads that run on one physical core belong to one VM (`dequeue` asserts it).
//! - **E2** A core switches to another VM only once nothing runs on it. To get there, CPUs of a core
//!   that should switch get nothing (*draining*), and its running threads are preempted at their next
//!   tick. Whether a core should switch is computed from its waiting and running threads each time, not
//!   remembered, so no state goes stale when the reason disappears.

mod cores;

use crate::per_cpu;
use cores::{ALL, BEYOND, Core, Cores, View, key, vm};
use heddle_core::{CpuId, Enqueue, Model, Ns, ParamError, Params, Policy};
use heddle_core::{Resched, TaskId, TreeNode, TreeTask, Var};

/// Partitioned EDF with core scheduling; see `docs/policies/core-edf.md`.
#[derive(Clone, Debug)]
pub struct CoreEdf {
    period: Ns,
    budget: Ns,
    slice: Ns,
}

/// Per-thread state; a VM's threads are tasks of one class.
#[derive(Debug, Default)]
pub struct Vcpu {
    /// While waiting: by VM, then by deadline or turn, ranked by deadline. While running: by deadline,
    /// or [`BEYOND`].
    node: TreeNode,
    /// Its core plus one; zero if it has none.
    home: Var,
    /// The CPU that runs it plus one; zero if it does not run.
    on: Var,
    since: Var<Ns>,
    /// The end of its period.
    deadline: Var<Ns>,
    /// How much of its budget it has used in this period.
    used: Var<Ns>,
}

impl TreeTask for Vcpu {
    fn node(&self) -> &TreeNode {
        &self.node
    }
}

impl CoreEdf {
    fn is_ready(&self, vcpu: &Vcpu) -> bool {
        vcpu.used.get() < self.budget
    }

    /// A thread's next period follows directly; an overrun of this one's budget is deducted from the
    /// next.
    fn begin_period(&self, vcpu: &Vcpu, now: Ns) {
        let over = vcpu.deadline.get();
        let start = if now < over + self.period { over } else { now };
        vcpu.deadline.set(start + self.period);
        vcpu.used.set(vcpu.used.get() - self.budget);
    }

    /// A waking thread keeps its deadline and remaining budget, unless the budget exceeds its share of
    /// the time until that deadline: using it would take time from others (the rule of the constant
    /// bandwidth server).
    fn wake(&self, vcpu: &Vcpu, now: Ns) {
        let (left, time) = (self.budget - vcpu.used.get(), vcpu.deadline.get() - now);
        let dense = u128::from(left.0) * u128::from(self.period.0)
            > u128::from(self.budget.0) * u128::from(time.0);
        if dense || time == Ns::ZERO {
            vcpu.deadline.set(now + self.period);
            vcpu.used.set(vcpu.used.get() - self.budget);
        }
    }

    /// Queues `task` on `core`.
    fn put(&self, cx: &View<'_>, core: &mut Core, task: TaskId) {
        let vcpu = &cx.task(task).policy;
        let (deadline, is_ready) = (vcpu.deadline.get().0, self.is_ready(vcpu));
        core.turns += 1;
        // 64 ns are close enough for the order within a VM, and 55 bits of them last 70 years.
        let place = if is_ready { deadline >> 6 } else { core.turns };
        core.tree(is_ready).insert_ranked(cx.tasks, task, key(vm(cx, task), place), deadline);
    }

    /// Renews the budget of the threads on `core` whose period is over.
    fn renew(&self, cx: &View<'_>, core: &mut Core, now: Ns) {
        while let Some(task) = core.spent.least_until(cx.tasks, ALL)
            && cx.task(task).policy.deadline.get() <= now
        {
            core.spent.remove(cx.tasks, task);
            self.begin_period(&cx.task(task).policy, now);
            self.put(cx, core, task);
        }
    }

    /// Moves a thread to `to`, which has none, from a core that has waiting threads.
    fn spill(&self, cx: &View<'_>, queue: &mut Cores, to: usize, now: Ns) -> Option<()> {
        let from = queue.spill_from(cx, to)?;
        self.renew(cx, &mut queue.cores[from], now);
        let task = queue.cores[from].best(cx)?;
        self.unqueue(cx, queue, from, task);
        queue.set_home(cx, task, Some(to));
        self.enqueue_at(cx, queue, to, task);
        Some(())
    }

    fn enqueue_at(&self, cx: &View<'_>, queue: &mut Cores, core: usize, task: TaskId) {
        self.put(cx, &mut queue.cores[core], task);
        queue.waiting.insert(CpuId(core as u16));
        queue.len += 1;
    }

    fn unqueue(&self, cx: &View<'_>, queue: &mut Cores, core: usize, task: TaskId) {
        let is_ready = self.is_ready(&cx.task(task).policy);
        queue.cores[core].tree(is_ready).remove(cx.tasks, task);
        if !queue.cores[core].waits() {
            queue.waiting.remove(CpuId(core as u16));
        }
        queue.len -= 1;
    }

    /// Records that `task` stopped running, if it ran, and charges what it used.
    fn stop(&self, cx: &View<'_>, queue: &mut Cores, task: TaskId, has_run: bool) {
        let vcpu = &cx.task(task).policy;
        let Some(cpu) = vcpu.on.get().checked_sub(1) else { return };
        let core = queue.core_of(cx, CpuId(cpu as u16));
        queue.cores[core].running.remove(cx.tasks, task);
        vcpu.on.set(0);
        if has_run && vcpu.node.key() != BEYOND {
            vcpu.used.set(vcpu.used.get() + (cx.now() - vcpu.since.get()));
        }
    }
}

impl Policy for CoreEdf {
    type Task = Vcpu;
    type Queue = Cores;

    const NAME: &'static str = "core-edf";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = false;
    const PREEMPTS: bool = true;
    const GANG: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        let period = params.ns("period", Ns::from_ms(10))?;
        let budget = params.ns("budget", period.min(Ns::from_ms(1)))?;
        let slice = params.ns("slice", Ns::from_us(500))?;
        match params.text("budget") {
            Some(given) if budget > period => {
                let allowed = "at most as long as `period`";
                Err(ParamError::Value { key: "budget", given, allowed })
            }
            _ => Ok(CoreEdf { period, budget, slice }),
        }
    }

    fn queue(&self) -> Cores {
        Cores::default()
    }

    #[inline]
    fn len(&self, queue: &Cores) -> usize {
        queue.len
    }

    fn quantum(&self) -> Option<Ns> {
        Some(self.slice.min(self.budget))
    }

    fn task_init(&self, cx: &View<'_>, task: TaskId) {
        let vcpu = &cx.task(task).policy;
        vcpu.home.set(0);
        vcpu.on.set(0);
        vcpu.deadline.set(Ns::ZERO);
        vcpu.used.set(Ns::ZERO);
    }

    fn task_exit(&self, cx: &View<'_>, queue: &mut Cores, task: TaskId) {
        self.stop(cx, queue, task, true);
        queue.set_home(cx, task, None);
    }

    /// A yielding thread is done for this period, as under SCHED_DEADLINE: it gets only spare time. The
    /// same applies after a failed commit; otherwise the task would be proposed again and again before
    /// all others.
    fn enqueue(&self, cx: &View<'_>, queue: &mut Cores, task: TaskId, why: Enqueue) {
        let (vcpu, now) = (&cx.task(task).policy, cx.now());
        self.stop(cx, queue, task, why != Enqueue::CommitFailed);
        if vcpu.home.get() == 0 {
            let core = queue.least_loaded(cx);
            queue.set_home(cx, task, Some(core));
        }
        if matches!(why, Enqueue::Yield | Enqueue::CommitFailed) {
            vcpu.used.set(vcpu.used.get().max(self.budget));
        }
        match why {
            Enqueue::New | Enqueue::Wakeup => self.wake(vcpu, now),
            _ if vcpu.deadline.get() <= now => self.begin_period(vcpu, now),
            _ => {}
        }
        self.enqueue_at(cx, queue, vcpu.home.get() as usize - 1, task);
    }

    fn dequeue(&self, cx: &View<'_>, queue: &mut Cores) -> Option<TaskId> {
        let (own, now) = (queue.core_of(cx, cx.cpu), cx.now());
        let is_idle = queue.cores[own].running.is_empty();
        if is_idle && !queue.cores[own].waits() {
            self.spill(cx, queue, own, now)?;
        }
        let core = &mut queue.cores[own];
        self.renew(cx, core, now);
        let task = if is_idle { core.best(cx)? } else { core.sibling(cx, now)? };
        if is_idle {
            core.vm = vm(cx, task);
            core.until = now + self.slice;
        }
        let vcpu = &cx.task(task).policy;
        let key = if self.is_ready(vcpu) { vcpu.deadline.get().0 } else { BEYOND };
        self.unqueue(cx, queue, own, task);
        let core = &mut queue.cores[own];
        assert!(core.vm == vm(cx, task), "E1: one VM on a core at a time");
        core.running.insert(cx.tasks, task, key);
        vcpu.on.set(u64::from(cx.cpu.0) + 1);
        vcpu.since.set(now);
        Some(task)
    }

    fn block(&self, cx: &View<'_>, queue: &mut Cores, task: TaskId) {
        self.stop(cx, queue, task, true);
    }

    /// Preempts the thread with the latest deadline on the newcomer's core if the newcomer's is
    /// earlier; if another VM runs there, only if the newcomer's is earlier than all of its deadlines.
    fn preempt(&self, cx: &View<'_>, queue: &mut Cores, task: TaskId) -> Option<CpuId> {
        let vcpu = &cx.task(task).policy;
        let core = &queue.cores[vcpu.home.get() as usize - 1];
        let (first, last) = (core.running.first_key(cx.tasks)?, core.running.last(cx.tasks)?);
        let last = &cx.task(last).policy;
        let latest = if core.vm == vm(cx, task) { last.node.key() } else { first };
        let earlier = self.is_ready(vcpu) && vcpu.deadline.get().0 < latest;
        earlier.then(|| CpuId((last.on.get() - 1) as u16))
    }

    /// At the end of its budget or, beyond it, of its slice; but soon if its core is needed by others.
    fn tick(&self, cx: &View<'_>, queue: &mut Cores, task: TaskId, ran: Ns) -> Resched {
        let (own, now) = (queue.core_of(cx, cx.cpu), cx.now());
        let (core, vcpu) = (&mut queue.cores[own], &cx.task(task).policy);
        self.renew(cx, core, now);
        let quantum = self.slice.min(self.budget);
        let limit = match vcpu.node.key() {
            runs if core.must_yield(cx, runs, now) => quantum,
            BEYOND => self.slice,
            _ => (self.budget - vcpu.used.get()).max(quantum),
        };
        per_cpu::after_looking(limit, quantum, ran)
    }
}

#[cfg(test)]
mod tests;
