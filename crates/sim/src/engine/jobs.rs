//! The tasks in the system.

use heddle_core::{CpuId, Ns, TaskAttrs, TaskId, TaskSlot};

/// What the simulator knows of a task but the policy does not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Job {
    /// Its number in the order of creation.
    pub born: u64,
    /// The number of its request; a task of a closed loop serves one after the other.
    pub number: u64,
    pub part: u32,
    /// The number of its connection, if it has one.
    pub connection: u32,
    pub kind: Kind,
    /// Whether it has run since the request arrived.
    pub started: bool,
    pub arrived: Ns,
    pub service: Ns,
    /// Work left, slowed down by the mechanism (I2).
    pub remaining: Ns,
    /// How long it has run; of threads only.
    pub ran: Ns,
    /// From arrival until it first ran.
    pub wait: Ns,
    /// The CPU where it arrived or last ran.
    pub home: CpuId,
    /// Whether it has ever run, so that its data is in the caches of `home`.
    pub warm: bool,
}

/// What a task represents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request, after which the task ends.
    #[default]
    Request,
    /// A connection's request, after which the task waits for the next one.
    Connection,
    /// A client's request, after which the task sleeps and returns.
    Client,
    /// A thread of a service, whose bursts [`crate::replay`] decides.
    Thread,
    /// Endless best-effort work of another application.
    Batch,
}

/// A table of tasks; slots of finished tasks are reused, the most recent first, so that few are
/// touched.
#[derive(Default)]
pub(super) struct Jobs<T> {
    slots: Vec<TaskSlot<T>>,
    jobs: Vec<Job>,
    free: Vec<u32>,
    born: u64,
}

impl<T: Default> Jobs<T> {
    #[inline]
    pub fn slots(&self) -> &[TaskSlot<T>] {
        &self.slots
    }

    /// Returns how many tasks there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline]
    pub fn get(&self, task: TaskId) -> &Job {
        &self.jobs[task.index()]
    }

    #[inline]
    pub fn get_mut(&mut self, task: TaskId) -> &mut Job {
        &mut self.jobs[task.index()]
    }

    #[inline(always)]
    pub fn add(&mut self, attrs: TaskAttrs, job: Job) -> TaskId {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(TaskSlot::default());
            self.jobs.push(Job::default());
            self.slots.len() as u32 - 1
        });
        self.slots[at as usize].set_attrs(attrs);
        self.jobs[at as usize] = Job { born: self.born, ..job };
        self.born += 1;
        TaskId(at)
    }

    /// Records that `task` waits in `queue`.
    #[inline]
    pub fn set_queued(&self, task: TaskId, queue: usize) {
        self.slots[task.index()].host.set(queue as u64 + 1);
    }

    /// Records that `task` no longer waits in `queue`; returns false if it did not.
    #[inline]
    pub fn claim(&self, task: TaskId, queue: usize) -> bool {
        let Some(slot) = self.slots.get(task.index()) else { return false };
        let waits = slot.host.get() == queue as u64 + 1;
        slot.host.set(0);
        waits
    }

    pub fn remove(&mut self, task: TaskId) {
        self.free.push(task.0);
    }

    /// Sets new attributes, for the next request of the same task.
    pub fn set_attrs(&mut self, task: TaskId, attrs: TaskAttrs) {
        self.slots[task.index()].set_attrs(attrs);
    }
}
