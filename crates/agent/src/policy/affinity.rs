//! Where threads may run, of which policies know nothing.

use super::Scheduler;
use super::cpus::Stage;
use super::table::At;
use heddle_core::{CpuId, Policy, TaskId};

/// How many threads set aside are looked at for one CPU.
const LOOKS: usize = 64;

impl<P: Policy> Scheduler<'_, P> {
    pub(super) fn may_run(&self, task: TaskId, cpu: CpuId) -> bool {
        self.backend.affinity(task).contains(cpu)
    }

    /// `cpu`, or the nearest to it that runs threads and where `task` may run; `cpu` again if there is none.
    pub(super) fn allowed_near(&self, task: TaskId, cpu: CpuId) -> CpuId {
        let allowed = self.backend.affinity(task).minus(&self.barred);
        if allowed.contains(cpu) {
            return cpu;
        }
        self.view.nearest_of(&allowed, cpu).unwrap_or(cpu)
    }

    /// Keeps `task`, proposed for a CPU where it may not run, for one where it may. The policy takes it for asleep.
    pub(super) fn set_aside(&mut self, task: TaskId) {
        self.tally.counts.set_aside += 1;
        self.told_asleep(task);
        self.asides.push_back(&self.slots, task);
        self.thread(task).at = At::Aside;
    }

    /// It sleeps, or is gone: it is not kept any longer.
    pub(super) fn unaside(&mut self, task: TaskId) {
        self.asides.remove(&self.slots, task);
        self.thread(task).at = At::Asleep;
    }

    /// The first of those set aside that may run on `cpu`. Those before it go behind the others: whoever may run nowhere shall
    /// not be looked at for ever.
    pub(super) fn take_aside(&mut self, cpu: CpuId) -> Option<TaskId> {
        for _ in 0..self.asides.len().min(LOOKS) {
            let task = self.asides.pop_front(&self.slots)?;
            if self.may_run(task, cpu) {
                return Some(task);
            }
            self.asides.push_back(&self.slots, task);
        }
        None
    }

    /// Whether one of those set aside may run on `cpu`.
    pub(super) fn waits_aside(&mut self, cpu: CpuId) -> bool {
        let found = self.take_aside(cpu);
        found.inspect(|&task| self.asides.push_front(&self.slots, task)).is_some()
    }

    /// `task` may run elsewhere than before. A seat that waits for its commit is given up where it must be; one that was
    /// committed is the kernel's to take away, and it says so.
    pub(super) fn affinity_changed(&mut self, task: TaskId) {
        let known = self.threads[task.index()];
        let waits = self.cpus[known.home.index()].stage != Stage::Given;
        if !known.is_seated() || !waits || self.may_run(task, known.home) {
            return;
        }
        self.vacate(known.home);
        match known.at {
            At::Out => self.set_aside(task),
            _ => {
                self.asides.push_back(&self.slots, task);
                self.thread(task).at = At::Aside;
            }
        }
    }
}
