//! The truth: where every task is, kept without the policy's help.

use super::Violation;
use super::world::TASKS;
use heddle_core::{CpuId, Ns, TaskId};
use std::vec::Vec;

/// Where a task is. Free -> Waiting -> Held -> Running -> Waiting, Asleep or Free; Asleep -> Waiting;
/// Held -> Waiting where the commit fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
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
    pub at: [At; TASKS],
    /// Where each task was created or last ran.
    pub home: [CpuId; TASKS],
    pub running: Vec<Option<Run>>,
}

impl Ledger {
    pub fn new(cpus: usize) -> Ledger {
        let running = (0..cpus).map(|_| None).collect();
        Ledger { at: [At::Free; TASKS], home: [CpuId(0); TASKS], running }
    }

    pub fn all(&self, at: impl Fn(At) -> bool) -> impl Iterator<Item = TaskId> {
        let index = (0..TASKS).filter(move |&i| at(self.at[i]));
        index.map(|i| TaskId(i as u32))
    }

    pub fn waiting(&self) -> impl Iterator<Item = TaskId> {
        self.all(|at| matches!(at, At::Waiting(_)))
    }

    pub fn first_waiting(&self) -> Option<TaskId> {
        self.waiting().next()
    }

    /// Accepts the proposal of `task` from `queue`, or says why it cannot be.
    pub fn claim(&mut self, queue: usize, task: TaskId) -> Result<TaskId, Violation> {
        match self.at.get_mut(task.index()) {
            Some(at) if *at == At::Waiting(queue) => {
                *at = At::Held;
                Ok(task)
            }
            _ => Err(Violation::NotWaiting(task)),
        }
    }

    pub fn start(&mut self, cpu: CpuId, task: TaskId) {
        self.at[task.index()] = At::Running;
        self.home[task.index()] = cpu;
        self.running[cpu.index()] = Some(Run { task, ran: Ns::ZERO });
    }

    pub fn pass(&mut self, time: Ns) {
        self.running.iter_mut().flatten().for_each(|run| run.ran += time);
    }
}
