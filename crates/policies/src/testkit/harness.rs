//! A harness that drives a policy one operation at a time, for examples in tests.

use super::world::World;
use heddle_core::{
    Balance, Class, CpuId, Cx, Enqueue, Model, Ns, Policy, Resched, TaskAttrs, TaskId,
};
use std::vec::Vec;

/// A policy with its queues on CPUs that are all idle, and sixteen tasks. The queue lengths that it
/// sees are correct; the test sets which CPUs are idle. Tasks and CPUs are bare numbers here, to keep
/// examples short.
pub struct PolicyHarness<P: Policy> {
    /// The policy itself.
    pub policy: P,
    queues: Vec<P::Queue>,
    world: World<P::Task>,
}

impl<P: Policy> PolicyHarness<P> {
    /// Builds a harness for the policy that `text` describes, on `cpus` CPUs.
    ///
    /// # Panics
    /// If `text` is refused.
    pub fn new(text: &str, cpus: usize) -> PolicyHarness<P> {
        let policy = crate::build::<P>(text).unwrap_or_else(|e| panic!("{e}"));
        let queues = (0..cpus).map(|_| policy.queue()).collect();
        PolicyHarness { policy, queues, world: World::new(cpus) }
    }

    /// Returns the context in which `cpu` asks.
    pub fn cx(&self, cpu: u16) -> Cx<'_, P::Task> {
        self.world.cx(CpuId(cpu))
    }

    /// The same, with its first eight tasks latency-critical if their number is even, best-effort if it
    /// is odd.
    ///
    /// # Panics
    /// As [`PolicyHarness::new`].
    pub fn of_two_classes(text: &str, cpus: usize) -> PolicyHarness<P> {
        let mut harness = PolicyHarness::new(text, cpus);
        for task in 0..8 {
            let class = if task % 2 == 0 { Class::LC } else { Class::BE };
            harness.init(task, TaskAttrs { class, ..TaskAttrs::default() });
        }
        harness
    }

    /// Lets `time` pass.
    pub fn pass(&mut self, time: Ns) {
        self.world.view.now += time;
    }

    /// Lets the task that `cpu` picks run for `time`, then preempts it; returns the task.
    ///
    /// # Panics
    /// If no task waits for `cpu`.
    pub fn run(&mut self, cpu: u16, time: Ns) -> u32 {
        let task = self.dequeue(cpu).expect("a task waits for the CPU");
        self.pass(time);
        self.enqueue(cpu, task, Enqueue::Preempted);
        task
    }

    /// Sets whether `cpu` is idle.
    pub fn set_idle(&mut self, cpu: u16, idle: bool) {
        self.world.view.idle[usize::from(cpu)] = idle;
    }

    /// Sets the time.
    pub fn set_now(&mut self, now: Ns) {
        self.world.view.now = now;
    }

    /// Gives `task` its attributes and lets the policy initialise it.
    pub fn init(&mut self, task: u32, attrs: TaskAttrs) {
        self.world.slots[task as usize].set_attrs(attrs);
        self.policy.task_init(&self.world.cx(CpuId(0)), TaskId(task));
    }

    /// Gives `task` another class without notifying the policy.
    pub fn set_class(&mut self, task: u32, class: u8) {
        let slot = &self.world.slots[task as usize];
        slot.set_attrs(TaskAttrs { class: Class(class), ..slot.attrs() });
    }

    /// Puts `task` into the queue of `cpu`.
    pub fn enqueue(&mut self, cpu: u16, task: u32, why: Enqueue) {
        let (queue, cx) = self.at(cpu);
        self.policy.enqueue(&self.world.cx(cx), &mut self.queues[queue], TaskId(task), why);
        self.count(queue);
    }

    /// Returns what `cpu` runs next.
    pub fn dequeue(&mut self, cpu: u16) -> Option<u32> {
        let (queue, cx) = self.at(cpu);
        let task = self.policy.dequeue(&self.world.cx(cx), &mut self.queues[queue]);
        self.count(queue);
        task.map(|task| task.0)
    }

    /// Takes `task`, which waits for `cpu`, out of turn; false if the policy keeps it.
    pub fn remove(&mut self, cpu: u16, task: u32) -> bool {
        let (queue, cx) = self.at(cpu);
        let removed = self.policy.remove(&self.world.cx(cx), &mut self.queues[queue], TaskId(task));
        self.count(queue);
        removed
    }

    /// Returns all tasks waiting for `cpu`, in the order in which they would run.
    pub fn drain(&mut self, cpu: u16) -> Vec<u32> {
        core::iter::from_fn(|| self.dequeue(cpu)).collect()
    }

    /// Returns what `thief` takes from `victim`.
    pub fn steal(&mut self, thief: u16, victim: u16) -> Option<u32> {
        let (queue, _) = self.at(victim);
        let (cx, from) = (self.world.cx(CpuId(thief)), CpuId(victim));
        let task = self.policy.steal(&cx, from, &mut self.queues[queue]);
        self.count(queue);
        task.map(|task| task.0)
    }

    /// Returns the policy's answer about `task`, which has run on `cpu` for `ran`.
    pub fn tick(&mut self, cpu: u16, task: u32, ran: Ns) -> Resched {
        let (queue, cx) = self.at(cpu);
        self.policy.tick(&self.world.cx(cx), &mut self.queues[queue], TaskId(task), ran)
    }

    /// Returns the CPU that is preempted for `task`, which was just enqueued at `cpu`.
    pub fn preempt(&mut self, cpu: u16, task: u32) -> Option<u16> {
        let (queue, cx) = self.at(cpu);
        let named = self.policy.preempt(&self.world.cx(cx), &mut self.queues[queue], TaskId(task));
        named.map(|cpu| cpu.0)
    }

    /// `task`, which ran on `cpu`, blocks.
    pub fn block(&mut self, cpu: u16, task: u32) {
        let (queue, cx) = self.at(cpu);
        self.policy.block(&self.world.cx(cx), &mut self.queues[queue], TaskId(task));
        self.count(queue);
    }

    /// `task`, which ran on `cpu`, exits.
    pub fn exit(&mut self, cpu: u16, task: u32) {
        let (queue, cx) = self.at(cpu);
        self.policy.task_exit(&self.world.cx(cx), &mut self.queues[queue], TaskId(task));
        self.count(queue);
    }

    /// Returns whose queue idle `cpu` visits at its `attempt`.
    pub fn balance(&self, cpu: u16, attempt: usize) -> Balance {
        self.policy.balance(&self.cx(cpu), attempt)
    }

    /// Returns where `task` of `home` goes when `by` wakes it.
    pub fn place(&self, by: u16, task: u32, home: u16) -> u16 {
        self.policy.place(&self.cx(by), TaskId(task), CpuId(home)).0
    }

    fn at(&self, cpu: u16) -> (usize, CpuId) {
        let queue = if P::MODEL == Model::Central { 0 } else { usize::from(cpu) };
        (queue, CpuId(cpu))
    }

    fn count(&mut self, queue: usize) {
        self.world.view.waiting[queue] = self.policy.len(&self.queues[queue]);
    }
}
