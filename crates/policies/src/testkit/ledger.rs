//! Ground truth: where every task is, recorded without the policy's help.

use super::Violation;
use super::world::TASKS;
use core::cell::Cell;
use heddle_core::driver::{Hook, Rule};
use heddle_core::{CpuId, Ns, TaskId};
use std::boxed::Box;
use std::panic::resume_unwind;
use std::vec::Vec;

/// Where a task is. Free -> Waiting -> Held -> Running -> Waiting, Asleep or Free; Asleep -> Waiting;
/// Held -> Waiting if the commit fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskLocation {
    Free,
    Waiting(usize),
    Held,
    Running,
    Asleep,
}

/// A task on a CPU and how long it has run since it was dequeued.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub task: TaskId,
    pub ran: Ns,
}

pub(super) struct Ledger {
    at: [Cell<TaskLocation>; TASKS],
    /// The position of each waiting task in the order of enqueuing.
    order: [Cell<u64>; TASKS],
    enqueued: u64,
    /// Where each task was created or last ran.
    pub home: [CpuId; TASKS],
    pub running: Vec<Option<Run>>,
}

impl Ledger {
    pub fn new(cpus: usize) -> Ledger {
        let running = (0..cpus).map(|_| None).collect();
        Ledger {
            at: [const { Cell::new(TaskLocation::Free) }; TASKS],
            order: [const { Cell::new(0) }; TASKS],
            enqueued: 0,
            home: [CpuId(0); TASKS],
            running,
        }
    }

    pub fn all(&self, at: impl Fn(TaskLocation) -> bool) -> impl Iterator<Item = TaskId> {
        let index = (0..TASKS).filter(move |&i| at(self.at[i].get()));
        index.map(|i| TaskId(i as u32))
    }

    pub fn waiting(&self) -> impl Iterator<Item = TaskId> {
        self.all(|at| matches!(at, TaskLocation::Waiting(_)))
    }

    pub fn first_waiting(&self) -> Option<TaskId> {
        self.waiting().next()
    }

    pub fn set(&mut self, task: TaskId, at: TaskLocation) {
        self.at[task.index()].set(at);
    }

    /// Records that `task` was put into `queue`.
    pub fn enqueue(&mut self, queue: usize, task: TaskId) {
        self.set(task, TaskLocation::Waiting(queue));
        self.enqueued += 1;
        self.order[task.index()].set(self.enqueued);
    }

    /// Returns whether no task waits in `queue` that came before `task`, which no longer waits there.
    pub fn is_first(&self, queue: usize, task: TaskId) -> bool {
        let came = |task: TaskId| self.order[task.index()].get();
        self.all(|at| at == TaskLocation::Waiting(queue)).all(|other| came(other) > came(task))
    }

    pub fn start(&mut self, cpu: CpuId, task: TaskId) {
        self.set(task, TaskLocation::Running);
        self.home[task.index()] = cpu;
        self.running[cpu.index()] = Some(Run { task, ran: Ns::ZERO });
    }

    pub fn pass(&mut self, time: Ns) {
        self.running.iter_mut().flatten().for_each(|run| run.ran += time);
    }
}

/// The ledger as the hook of one call for `queue`.
pub(super) struct Checks<'a> {
    pub ledger: &'a Ledger,
    pub queue: usize,
}

impl Hook for Checks<'_> {
    type Claimed = TaskId;

    /// The machine compares lengths and publishes them, unless the hints should be stale.
    fn publish(&self, _: usize) {}

    fn claim(&self, task: TaskId) -> Option<TaskId> {
        let at = self.ledger.at.get(task.index())?;
        (at.get() == TaskLocation::Waiting(self.queue)).then(|| at.set(TaskLocation::Held))?;
        Some(task)
    }

    /// A panic that only the kit sees.
    fn broke(&self, _: &'static str, rule: Rule) -> ! {
        resume_unwind(Box::new(Violation::Broke(rule)))
    }
}
