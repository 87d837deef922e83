//! Affinities, which policies do not know.

use super::Scheduler;
use super::cpus::Stage;
use super::thread::PolicyState;
use heddle_core::{CpuId, Policy, TaskId};

/// How many deferred threads to examine for one CPU.
const LOOKS: usize = 64;

impl<P: Policy> Scheduler<'_, P> {
    pub(super) fn may_run(&self, task: TaskId, cpu: CpuId) -> bool {
        self.backend.affinity(task).contains(cpu)
    }

    /// Returns `cpu`, or the nearest CPU that runs threads and that `task` may use; `cpu` itself if there is
    /// none.
    pub(super) fn allowed_near(&self, task: TaskId, cpu: CpuId) -> CpuId {
        let allowed = self.backend.affinity(task).minus(&self.barred);
        if allowed.contains(cpu) {
            return cpu;
        }
        self.view.nearest_of(&allowed, cpu).unwrap_or(cpu)
    }

    /// Defers `task`, which was proposed for a CPU that it may not use, until a CPU that it may use is free.
    /// The policy takes it for asleep.
    pub(super) fn defer(&mut self, task: TaskId) {
        self.tally.counts.deferred += 1;
        self.report_blocked(task);
        self.deferred.push_back(&self.slots, task);
        self.thread(task).set_policy_state(PolicyState::Deferred);
    }

    /// Takes `task`, which is blocked or gone, off the deferred list.
    pub(super) fn remove_deferred(&mut self, task: TaskId) {
        self.deferred.remove(&self.slots, task);
        self.thread(task).set_policy_state(PolicyState::Asleep);
    }

    /// Takes the first deferred thread that may run on `cpu`. Threads before it go to the end, so a thread
    /// that may run nowhere is not examined every time.
    pub(super) fn take_deferred(&mut self, cpu: CpuId) -> Option<TaskId> {
        for _ in 0..self.deferred.len().min(LOOKS) {
            let task = self.deferred.pop_front(&self.slots)?;
            if self.may_run(task, cpu) {
                return Some(task);
            }
            self.deferred.push_back(&self.slots, task);
        }
        None
    }

    /// Whether a deferred thread may run on `cpu`.
    pub(super) fn has_deferred_for(&mut self, cpu: CpuId) -> bool {
        let found = self.take_deferred(cpu);
        found.inspect(|&task| self.deferred.push_front(&self.slots, task)).is_some()
    }

    /// The affinity of `task` has changed. An uncommitted assignment to a CPU that is now forbidden is given
    /// up; a committed one is the kernel's to end, and its message tells.
    pub(super) fn affinity_changed(&mut self, task: TaskId) {
        let known = self.threads[task.index()];
        let waits = self.cpus[known.home.index()].stage() != Stage::Committed;
        if !known.is_assigned() || !waits || self.may_run(task, known.home) {
            return;
        }
        self.vacate(known.home);
        match known.policy_state() {
            PolicyState::Dispatched => self.defer(task),
            _ => {
                self.deferred.push_back(&self.slots, task);
                self.thread(task).set_policy_state(PolicyState::Deferred);
            }
        }
    }
}
