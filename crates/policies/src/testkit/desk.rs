//! A policy on a desk: single operations, for examples in tests.

use super::world::World;
use heddle_core::{CpuId, Cx, Enqueue, Model, Ns, Policy, Resched, TaskAttrs, TaskId};
use std::vec::Vec;

/// A policy with its queues on CPUs that are all idle, and sixteen tasks. The queue lengths that it sees are
/// right; idleness is what the test says. Tasks and CPUs are bare numbers here, to keep examples short.
pub struct Desk<P: Policy> {
    /// The policy itself.
    pub policy: P,
    queues: Vec<P::Queue>,
    world: World<P::Task>,
}

impl<P: Policy> Desk<P> {
    /// The policy that `text` describes, on `cpus` CPUs.
    ///
    /// # Panics
    /// If `text` is refused.
    pub fn new(text: &str, cpus: usize) -> Desk<P> {
        let policy = crate::build::<P>(text).unwrap_or_else(|e| panic!("{e}"));
        let queues = (0..cpus).map(|_| policy.queue()).collect();
        Desk { policy, queues, world: World::new(cpus) }
    }

    /// The context in which `cpu` asks.
    pub fn cx(&self, cpu: u16) -> Cx<'_, P::Task> {
        self.world.cx(CpuId(cpu))
    }

    /// Says whether `cpu` is idle.
    pub fn set_idle(&mut self, cpu: u16, idle: bool) {
        self.world.view.idle[usize::from(cpu)] = idle;
    }

    /// Says what time it is.
    pub fn set_now(&mut self, now: Ns) {
        self.world.view.now = now;
    }

    /// Gives `task` its attributes and lets the policy initialise it.
    pub fn init(&mut self, task: u32, attrs: TaskAttrs) {
        self.world.slots[task as usize].set_attrs(attrs);
        self.policy.task_init(&self.world.cx(CpuId(0)), TaskId(task));
    }

    /// Puts `task` into the queue of `cpu`.
    pub fn enqueue(&mut self, cpu: u16, task: u32, why: Enqueue) {
        let (queue, cx) = self.at(cpu);
        self.policy.enqueue(&self.world.cx(cx), &mut self.queues[queue], TaskId(task), why);
        self.count(queue);
    }

    /// What `cpu` shall run next.
    pub fn dequeue(&mut self, cpu: u16) -> Option<u32> {
        let (queue, cx) = self.at(cpu);
        let task = self.policy.dequeue(&self.world.cx(cx), &mut self.queues[queue]);
        self.count(queue);
        task.map(|task| task.0)
    }

    /// All that waits for `cpu`, in the order in which it would run.
    pub fn drain(&mut self, cpu: u16) -> Vec<u32> {
        core::iter::from_fn(|| self.dequeue(cpu)).collect()
    }

    /// What `thief` takes from `victim`.
    pub fn steal(&mut self, thief: u16, victim: u16) -> Option<u32> {
        let (queue, _) = self.at(victim);
        let task = self.policy.steal(&self.world.cx(CpuId(thief)), &mut self.queues[queue]);
        self.count(queue);
        task.map(|task| task.0)
    }

    /// What the policy says of `task`, which has run on `cpu` for `ran`.
    pub fn tick(&mut self, cpu: u16, task: u32, ran: Ns) -> Resched {
        let (queue, cx) = self.at(cpu);
        self.policy.tick(&self.world.cx(cx), &mut self.queues[queue], TaskId(task), ran)
    }

    /// Where `task` of `home` goes when `by` wakes it.
    pub fn place(&self, by: u16, task: u32, home: u16) -> u16 {
        self.policy.place(&self.cx(by), TaskId(task), CpuId(home)).cpu.0
    }

    fn at(&self, cpu: u16) -> (usize, CpuId) {
        let queue = if P::MODEL == Model::Central { 0 } else { usize::from(cpu) };
        (queue, CpuId(cpu))
    }

    fn count(&mut self, queue: usize) {
        self.world.view.waiting[queue] = self.policy.len(&self.queues[queue]);
    }
}
