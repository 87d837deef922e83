//! One run queue, held by the caller that owns or has locked it.

use super::{Driver, Hook, Proposal, Rule, STEAL_LIMIT, Stolen};
use crate::{CpuId, CpuSet, Cx, Dispatch, Enqueue, EventKind, Model, Ns, Policy, Resched, TaskId};

/// A run queue for the duration of one call; see [`Driver::on`].
pub struct RunQueue<'a, P: Policy, H: Hook> {
    pub(super) driver: Driver<'a, P, H>,
    pub(super) queue: &'a mut P::Queue,
}

impl<P: Policy, H: Hook> RunQueue<'_, P, H> {
    /// Returns the number of waiting tasks.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.driver.call("len", |policy, _| policy.len(self.queue))
    }

    /// Returns the hook of this call.
    #[inline]
    pub fn hook(&self) -> &H {
        &self.driver.hook
    }

    /// Puts `task` into the queue.
    #[inline(always)]
    pub fn enqueue(&mut self, task: TaskId, why: Enqueue) {
        if let Some(what) = EventKind::queued(why) {
            self.driver.hook.record(self.driver.cx.cpu, task, what);
        }
        self.call("enqueue", |policy, cx, queue| policy.enqueue(cx, queue, task, why));
        self.publish();
    }

    /// Returns what the CPU of this call should run next.
    #[inline(always)]
    pub fn dequeue(&mut self) -> Option<Proposal<H::Claimed>> {
        let task = self.call("dequeue", |policy, cx, queue| policy.dequeue(cx, queue))?;
        self.publish();
        Some(self.propose(task))
    }

    /// Takes `task`, which waits in this queue, out of turn; `None` if the policy does not.
    pub fn remove(&mut self, task: TaskId) -> Option<Proposal<H::Claimed>> {
        let removed = self.call("remove", |policy, cx, queue| policy.remove(cx, queue, task));
        self.publish();
        removed.then(|| self.propose(task))
    }

    /// Passes the tasks to run next to `each`, in order, until that returns false.
    pub fn upcoming(&mut self, mut each: impl FnMut(TaskId) -> bool) {
        self.call("upcoming", |policy, cx, queue| policy.upcoming(cx, queue, &mut each));
    }

    /// Returns what the policy says of a waiting task to those who choose among the upcoming.
    pub fn hint(&mut self, task: TaskId) -> u64 {
        self.call("hint", |policy, cx, _| policy.hint(cx, task))
    }

    /// Called when the running task goes to sleep.
    #[inline(always)]
    pub fn block(&mut self, task: TaskId) {
        self.driver.hook.record(self.driver.cx.cpu, task, EventKind::Block);
        self.call("block", |policy, cx, queue| policy.block(cx, queue, task));
        self.publish();
    }

    /// Called when the running task has ended.
    #[inline(always)]
    pub fn exit(&mut self, task: TaskId) {
        self.driver.hook.record(self.driver.cx.cpu, task, EventKind::Exit);
        self.call("task_exit", |policy, cx, queue| policy.task_exit(cx, queue, task));
        self.publish();
    }

    /// Returns whether `task`, which has run for `ran` since it got the CPU, may continue.
    #[inline]
    pub fn tick(&mut self, task: TaskId, ran: Ns) -> Resched {
        let answer = self.call("tick", |policy, cx, queue| policy.tick(cx, queue, task, ran));
        self.publish();
        if matches!(answer, Resched::After(Ns::ZERO) | Resched::Until(Ns::ZERO)) {
            self.driver.broke(Rule::NoProgress);
        }
        answer
    }

    /// Returns the CPU whose task should yield to `task`, which was just enqueued here and which no idle CPU takes.
    #[inline]
    pub fn preempt(&mut self, task: TaskId) -> Option<CpuId> {
        let named = self.call("preempt", |policy, cx, queue| policy.preempt(cx, queue, task));
        self.publish();
        let cpu = named?;
        let is_own = P::MODEL == Model::Central || cpu == self.driver.cx.cpu;
        if !is_own || cpu.index() >= self.driver.cx.topology().len() {
            self.driver.broke(Rule::NoSuchCpu { call: "preempt", cpu });
        }
        Some(cpu)
    }

    /// Lets the policy hand out tasks to the CPUs of `idle`; `assigned` is called for each. Central model only.
    pub fn poll(&mut self, idle: CpuSet, assigned: impl FnMut(CpuId, Proposal<H::Claimed>)) {
        let Self { driver, queue } = self;
        let mut round = Round { driver, idle, assigned };
        driver.call("poll", |policy, cx| policy.poll(cx, queue, &mut round));
        self.publish();
    }

    /// Takes up to `limit` tasks from this queue, which belongs to `from`, for the CPU of this call.
    pub(super) fn steal(&mut self, from: CpuId, limit: usize) -> Stolen<H::Claimed> {
        let mut stolen = Stolen::new();
        for _ in 0..limit.clamp(1, STEAL_LIMIT) {
            let task = self.call("steal", |policy, cx, queue| policy.steal(cx, from, queue));
            let Some(task) = task else { break };
            stolen.push(self.propose(task));
        }
        self.publish();
        stolen
    }

    #[inline(always)]
    fn propose(&self, task: TaskId) -> Proposal<H::Claimed> {
        self.driver.propose(task)
    }

    #[inline(always)]
    fn publish(&self) {
        self.driver.hook.publish(self.len());
    }

    #[inline(always)]
    fn call<R>(
        &mut self,
        name: &'static str,
        f: impl FnOnce(&P, &Cx<'_, P::Task>, &mut P::Queue) -> R,
    ) -> R {
        let Self { driver, queue } = self;
        driver.call(name, |policy, cx| f(policy, cx, queue))
    }
}

impl<P: Policy, H: Hook> Driver<'_, P, H> {
    #[inline(always)]
    fn propose(&self, task: TaskId) -> Proposal<H::Claimed> {
        match self.hook.claim(task) {
            Some(claimed) => Proposal::new(task, claimed),
            None => self.broke(Rule::NotWaiting(task)),
        }
    }
}

/// The decisions of one round of a dispatcher.
struct Round<'d, 'a, P: Policy, H: Hook, F> {
    driver: &'d Driver<'a, P, H>,
    idle: CpuSet,
    assigned: F,
}

impl<P: Policy, H: Hook, F: FnMut(CpuId, Proposal<H::Claimed>)> Dispatch
    for Round<'_, '_, P, H, F>
{
    fn idle(&self) -> CpuSet {
        self.idle
    }

    fn assign(&mut self, cpu: CpuId, task: TaskId) {
        let exists = cpu.index() < CpuSet::CAPACITY;
        if !exists || !self.idle.contains(cpu) {
            self.driver.broke(Rule::BusyCpu(cpu));
        }
        self.idle.remove(cpu);
        let proposal = self.driver.propose(task);
        (self.assigned)(cpu, proposal);
    }
}
