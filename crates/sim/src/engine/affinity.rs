//! Threads that may not run on every CPU.
//!
//! Policies do not know it. A thread that is placed elsewhere goes to a CPU of its own, and what an idle CPU finds in
//! another's queue but may not run goes back there. The fair policies keep its position then; under others it may lose
//! its turn among those that wait. Policies with one queue for all CPUs would propose a thread to the wrong CPU each
//! time, and are refused.

use super::Engine;
use heddle_core::driver::{Proposal, SearchResult};
use heddle_core::{CpuId, CpuSet, Ns, Policy, TaskId};

/// The CPUs of each thread; none are kept if all threads may run everywhere.
#[derive(Debug, Default)]
pub(super) struct Affinity {
    allowed: Vec<CpuSet>,
    /// In whose queue each waits, or waited last.
    queued: Vec<CpuId>,
}

impl Affinity {
    /// Restricts every thread to its set.
    pub fn restrict(&mut self, allowed: Vec<CpuSet>) {
        self.queued = vec![CpuId(0); allowed.len()];
        self.allowed = allowed;
    }

    #[inline]
    pub fn is_restricted(&self) -> bool {
        !self.allowed.is_empty()
    }

    #[inline]
    pub fn allows(&self, task: TaskId, cpu: CpuId) -> bool {
        self.allowed.get(task.index()).is_none_or(|set| set.contains(cpu))
    }

    /// `task` waits in the queue of `cpu`.
    #[inline]
    pub fn set_queued(&mut self, task: TaskId, cpu: CpuId) {
        if let Some(queued) = self.queued.get_mut(task.index()) {
            *queued = cpu;
        }
    }
}

impl<P: Policy> Engine<'_, P> {
    /// Returns where `task` goes that the policy places at `cpu`: there if it may run there, else to the nearest idle
    /// CPU of its own, else to the one where the fewest wait.
    #[inline]
    pub(super) fn permitted(&self, task: TaskId, cpu: CpuId) -> CpuId {
        match self.affinity.allows(task, cpu) {
            true => cpu,
            false => self.nearest_permitted(&self.affinity.allowed[task.index()], cpu),
        }
    }

    fn nearest_permitted(&self, allowed: &CpuSet, cpu: CpuId) -> CpuId {
        let idle = self.view.idle.and(allowed);
        let nearest = self.view.nearest_of(&idle, cpu);
        let fewest = || allowed.iter().min_by_key(|cpu| self.view.waiting(cpu.index()));
        nearest.or_else(fewest).unwrap_or(cpu)
    }

    /// `cpu` searches other queues for what it may run; what it may not goes back.
    pub(super) fn search_permitted(&mut self, cpu: CpuId) -> (Vec<Proposal<TaskId>>, Option<Ns>) {
        let (mut refused, mut later) = (Vec::new(), None);
        let found = loop {
            match self.search(cpu) {
                SearchResult::Tasks(stolen) => {
                    let allows = |task: &Proposal<TaskId>| self.affinity.allows(task.task(), cpu);
                    let (found, others): (Vec<_>, Vec<_>) = stolen.into_iter().partition(allows);
                    refused.extend(others);
                    if !found.is_empty() {
                        break found;
                    }
                }
                SearchResult::Later(time) => {
                    later = Some(time);
                    break Vec::new();
                }
                SearchResult::Nothing => break Vec::new(),
            }
        };
        for task in refused {
            let owner = self.affinity.queued[task.task().index()];
            let task = task.migrate(&mut self.on(owner));
            self.set_queued(owner, task);
        }
        (found, later)
    }
}
