//! `eevdf`: of the tasks that are owed time, the one with the earliest virtual deadline runs.
//!
//! - **Optimises** fairness with bounded delay: a task's service differs from its share by at most a
//!   slice, and the wait of a waking task depends on its own slice, not on what others have had.
//! - **Parameters**: `slice` (default 12.5us), how long a task asks to run at a time; `weight` (default
//!   15, at most 1024), that of classes other than LC, which has 1024, for tasks without a weight of
//!   their own; `tick` (default none), the period of the kernel's timer: see below.
//! - **Complexity**: O(log n) expected to enqueue and dequeue with n tasks in the queue; placing and
//!   stealing read a hint per CPU.
//! - **Source**: Stoica and Abdel-Wahab, "Earliest Eligible Virtual Deadline First", TR-95-22, Old
//!   Dominion University, 1995; Skyloft, section 5.1 and Tables 4 and 5; Linux from 6.6 on for what
//!   happens when tasks sleep and wake.
//!
//! # Virtual time
//! A queue's virtual time V is the weighted average of its tasks' virtual times. The *lag* of a task, V
//! minus its virtual time, is what it is owed: it is *eligible* while its lag is not negative. Its
//! *deadline* is when it will have received one more slice. At least one waiting task is always
//! eligible: the least of some numbers is not above their average, rounded down or not.
//!
//! V is kept as `base` plus a sum of weighted distances from it, so that adding or removing a task
//! takes constant time. Sums are exact while the distances of a queue's tasks add up to less than 100
//! days of running.
//!
//! # Ticks
//! With `tick` the policy is the kernel's fair class (Linux 6.17): the end of a request is noticed only at
//! multiples of `tick`, or when another task wakes; a wakeup preempts a running task that is owed time
//! only at the end of its request (RUN_TO_PARITY); and a task that sleeps in debt pays it off meanwhile
//! (DELAY_DEQUEUE).

use crate::fair::{self, Entity, UNIT, Weights};
use crate::per_cpu;
use heddle_core::{Balance, CpuId, Cx, Enqueue, FairTerms, Model, Ns, ParamError, Params, Policy};
use heddle_core::{Resched, TaskId, TaskTree, TreeNode, TreeTask, Var};

/// Earliest eligible virtual deadline first; see `docs/policies/eevdf.md`.
#[derive(Clone, Debug)]
pub struct Eevdf {
    slice: Ns,
    tick: Option<Ns>,
    weights: Weights,
}

/// With ticks, a task runs for at least this part of a slice, even if the rest of its request is shorter: a hook must
/// know its shortest quantum.
const LEAST_OF_SLICE: u64 = 10;

/// Per-task state.
#[derive(Debug, Default)]
pub struct Request {
    entity: Entity,
    /// The virtual time at which it will have received its request.
    deadline: Var,
}

impl TreeTask for Request {
    fn node(&self) -> &TreeNode {
        &self.entity.node
    }
}

impl Request {
    fn extend(&self, slice: u64) {
        self.deadline.set(self.deadline.get().wrapping_add(slice));
    }

    fn ask(&self, slice: u64) {
        self.deadline.set(self.entity.vtime.get().wrapping_add(slice));
    }

    /// What is left of the request in virtual time; not above zero once it is fulfilled.
    fn left(&self) -> i64 {
        fair::ahead(self.deadline.get(), self.entity.vtime.get())
    }

    fn join(&self, cpu: CpuId, time: u64) {
        self.extend(self.entity.join(cpu, time));
    }
}

/// The run queue of one CPU.
#[derive(Debug, Default)]
pub struct Queue {
    /// The waiting tasks, by virtual time and ranked by deadline.
    tree: TaskTree,
    /// The sum of their weights.
    load: u64,
    /// The sum of their distances from `base` by weight.
    sum: i64,
    base: u64,
    /// The running task. After a steal, unknown until the first tick: the thief's queue is not
    /// notified.
    running: Option<TaskId>,
}

impl Queue {
    /// Adds a task of `weight` at `vtime`, or removes it if the weight is negative.
    ///
    /// Sums wrap: an invalid running time of centuries, as a hostile writer of an agent's memory may
    /// report, spoils the average until the task is removed, and nothing else.
    fn count(&mut self, vtime: u64, weight: i64) {
        let distance = fair::ahead(vtime, self.base);
        self.sum = self.sum.wrapping_add(distance.wrapping_mul(weight));
        self.load = self.load.wrapping_add_signed(weight);
    }

    /// Returns the average of the waiting tasks.
    fn waiting_time(&self) -> u64 {
        match self.load {
            0 => self.base,
            load => self.base.wrapping_add_signed(self.sum.div_euclid(load as i64)),
        }
    }

    /// Moves `base` to `time`, near which the distances are small.
    fn rebase(&mut self, time: u64) {
        let distance = fair::ahead(time, self.base);
        self.sum = self.sum.wrapping_sub(distance.wrapping_mul(self.load as i64));
        self.base = time;
    }
}

impl Eevdf {
    /// Returns the slice of `task` in virtual time.
    fn virtual_slice(&self, cx: &Cx<'_, Request>, task: TaskId) -> u64 {
        fair::virtual_time_of(self.slice, self.weights.of(cx, task))
    }

    /// Returns the virtual time of `queue`: the average over its waiting tasks and the running one.
    fn time(&self, cx: &Cx<'_, Request>, queue: &mut Queue) -> u64 {
        let Some(running) = queue.running else { return queue.waiting_time() };
        let weight = self.weights.of(cx, running) as i64;
        let vtime = cx.task(running).policy.entity.vtime.get();
        queue.count(vtime, weight);
        let time = queue.waiting_time();
        queue.count(vtime, -weight);
        time
    }

    /// Charges `task`, which runs or ran on this queue's CPU.
    fn charge(&self, cx: &Cx<'_, Request>, queue: &mut Queue, task: TaskId) {
        let request = &cx.task(task).policy;
        request.entity.charge(cx.now(), self.weights.of(cx, task));
        request.join(cx.cpu, queue.waiting_time());
        if queue.tree.is_empty() {
            queue.rebase(request.entity.vtime.get());
        }
    }

    fn charge_running(&self, cx: &Cx<'_, Request>, queue: &mut Queue) {
        if let Some(running) = queue.running {
            self.charge(cx, queue, running);
        }
    }

    /// Inserts an incoming task with the lag it left with. Its arrival moves the average towards it,
    /// which would take away part of that lag, so it is placed a little farther away.
    fn put(&self, cx: &Cx<'_, Request>, queue: &mut Queue, task: TaskId) {
        let entity = &cx.task(task).policy.entity;
        let weight = self.weights.of(cx, task);
        let load = queue.load + queue.running.map_or(0, |running| self.weights.of(cx, running));
        let time = self.time(cx, queue);
        if self.tick.is_some() && load > 0 && entity.is_indebted_to(cx.cpu) {
            // It stayed in the queue, so to speak, until the others had caught up.
            return entity.put(cx.cpu, fair::later(entity.vtime.get(), time));
        }
        let lead = entity.lead.get() as i64;
        let lead = if load == 0 { 0 } else { lead + lead * weight as i64 / load as i64 };
        entity.put(cx.cpu, time.wrapping_add_signed(lead));
    }

    /// Returns whether `running` yields to `task`, which has just woken, under the kernel's rules: at the end of its
    /// request, and before only if it has had more than its share and `task` is the one to run next.
    fn yields_to(
        &self,
        cx: &Cx<'_, Request>,
        queue: &mut Queue,
        running: TaskId,
        task: TaskId,
    ) -> bool {
        let (old, time) = (&cx.task(running).policy, self.time(cx, queue));
        let next = || queue.tree.least_until(cx.tasks, time) == Some(task);
        old.left() <= 0 || (fair::ahead(old.entity.vtime.get(), time) > 0 && next())
    }

    /// Returns the shortest turn.
    fn shortest(&self) -> Ns {
        if self.tick.is_some() { (self.slice / LEAST_OF_SLICE).max(Ns(1)) } else { self.slice }
    }

    /// Takes the eligible task with the earliest deadline out of `queue` to run it.
    fn take(&self, cx: &Cx<'_, Request>, queue: &mut Queue) -> Option<TaskId> {
        let time = queue.waiting_time();
        queue.rebase(time);
        let task = queue.tree.least_until(cx.tasks, time)?;
        let entity = &cx.task(task).policy.entity;
        queue.tree.remove(cx.tasks, task);
        queue.count(entity.vtime.get(), -(self.weights.of(cx, task) as i64));
        entity.leave(time, Some(cx.now()));
        Some(task)
    }
}

impl Policy for Eevdf {
    type Task = Request;
    type Queue = Queue;

    const NAME: &'static str = "eevdf";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = true;
    const PREEMPTS: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        let slice = params.ns("slice", Ns(12_500))?;
        let weights = Weights::read(params)?;
        Ok(Eevdf { slice, tick: params.ns_or_none("tick", None)?, weights })
    }

    fn queue(&self) -> Queue {
        Queue::default()
    }

    #[inline]
    fn len(&self, queue: &Queue) -> usize {
        queue.tree.len()
    }

    fn quantum(&self) -> Option<Ns> {
        Some(self.shortest())
    }

    fn fair_terms(&self) -> Option<FairTerms> {
        Some(FairTerms::new(self.weights.best_effort(), self.slice))
    }

    fn task_init(&self, cx: &Cx<'_, Request>, task: TaskId) {
        cx.task(task).policy.entity.reset();
    }

    fn task_exit(&self, _: &Cx<'_, Request>, queue: &mut Queue, task: TaskId) {
        queue.running.take_if(|running| *running == task);
    }

    /// A task requests a new slice when it has used up the last one and when it wakes; a new task first
    /// requests half a slice, to be let in soon. A task that yields, or whose commit failed, gives up
    /// the rest of its slice.
    fn enqueue(&self, cx: &Cx<'_, Request>, queue: &mut Queue, task: TaskId, why: Enqueue) {
        let (request, slice) = (&cx.task(task).policy, self.virtual_slice(cx, task));
        queue.running.take_if(|running| *running == task);
        match why {
            Enqueue::New | Enqueue::Wakeup => {
                self.charge_running(cx, queue);
                self.put(cx, queue, task);
                request.ask(if why == Enqueue::New { slice / 2 } else { slice });
            }
            Enqueue::Yield | Enqueue::Preempted => self.charge(cx, queue, task),
            Enqueue::Migrated | Enqueue::CommitFailed => request.join(cx.cpu, queue.waiting_time()),
        }
        if matches!(why, Enqueue::Yield | Enqueue::CommitFailed) {
            request.extend(slice);
        } else if request.left() <= 0 {
            request.ask(slice);
        }
        let vtime = request.entity.vtime.get();
        queue.tree.insert_ranked(cx.tasks, task, vtime, request.deadline.get());
        queue.count(vtime, self.weights.of(cx, task) as i64);
    }

    fn dequeue(&self, cx: &Cx<'_, Request>, queue: &mut Queue) -> Option<TaskId> {
        queue.running = self.take(cx, queue);
        queue.running
    }

    /// Keeps the task's lag across its sleep, limited to two slices, or a tick if that is longer.
    fn block(&self, cx: &Cx<'_, Request>, queue: &mut Queue, task: TaskId) {
        self.charge(cx, queue, task);
        queue.running = Some(task);
        let tick = fair::virtual_time_of(self.tick.unwrap_or_default(), self.weights.of(cx, task));
        let limit = (2 * self.virtual_slice(cx, task)).max(tick) as i64;
        let time = self.time(cx, queue);
        queue.running = None;
        let entity = &cx.task(task).policy.entity;
        entity.leave(time, None);
        let lead = (entity.lead.get() as i64).clamp(-limit, limit);
        entity.lead.set(lead as u64);
        entity.vtime.set(time.wrapping_add_signed(lead));
    }

    /// The nearest idle CPU, else home, where the task's data is.
    #[inline]
    fn place(&self, cx: &Cx<'_, Request>, _: TaskId, home: CpuId) -> CpuId {
        cx.nearest_idle(home).unwrap_or(home)
    }

    /// Preempts if the newcomer is eligible and its deadline is earlier; with ticks, see `yields_to`.
    fn preempt(&self, cx: &Cx<'_, Request>, queue: &mut Queue, task: TaskId) -> Option<CpuId> {
        let running = queue.running?;
        self.charge(cx, queue, running);
        if self.tick.is_some() {
            return self.yields_to(cx, queue, running, task).then_some(cx.cpu);
        }
        let (old, new) = (&cx.task(running).policy, &cx.task(task).policy);
        let eligible = fair::ahead(new.entity.vtime.get(), self.time(cx, queue)) <= 0;
        let earlier = fair::ahead(old.deadline.get(), new.deadline.get()) > 0;
        (eligible && earlier).then_some(cx.cpu)
    }

    /// Preempts once the request is fulfilled, but not before a whole slice, even if part of it ran
    /// before a preemption: a hook must not be asked for shorter quanta than it was promised.
    fn tick(&self, cx: &Cx<'_, Request>, queue: &mut Queue, task: TaskId, ran: Ns) -> Resched {
        self.charge(cx, queue, task);
        queue.running = Some(task);
        let left = cx.task(task).policy.left().max(0) as u64;
        let left = Ns((left * self.weights.of(cx, task)).div_ceil(UNIT));
        let end = self.shortest().max(ran + left);
        match self.tick {
            None => per_cpu::after(end, ran),
            Some(tick) => per_cpu::at_tick(end, ran, cx.now(), tick),
        }
    }

    fn balance(&self, cx: &Cx<'_, Request>, attempt: usize) -> Balance {
        per_cpu::victim(cx, attempt)
    }

    /// Takes the task that would run next.
    fn steal(&self, cx: &Cx<'_, Request>, _: CpuId, victim: &mut Queue) -> Option<TaskId> {
        self.take(cx, victim)
    }
}

#[cfg(test)]
mod tests;
