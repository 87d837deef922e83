//! Counters of a runtime.

use heddle_core::Ns;

/// What a runtime has done since it started. Counters only grow, except the queue lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The runtime's name, if it has one.
    pub runtime: Option<String>,
    /// Times that a worker started or resumed a task.
    pub switches: u64,
    /// Tasks taken off their worker before they gave it up.
    pub preemptions: u64,
    /// Times that the mechanism interrupted a task, because its quantum was over or it was asked to yield. Some are in
    /// a section that holds preemption off, and yield later.
    pub interrupts: u64,
    /// Times that a probe in a task found that its quantum was over, or that it was asked to yield
    /// ([`crate::Mechanism::Probe`]).
    pub probes: u64,
    /// Times that a poll of a future whose quantum was over kept its CPU, because so many preempted polls hold stacks
    /// already ([`crate::RuntimeBuilder::max_preempted_polls`]).
    pub polls_kept: u64,
    /// Quanta that ended while nothing else waited for the CPU, so that no task was preempted (Aspen, section 3.2).
    pub preemptions_skipped: u64,
    /// Workers that had to be reminded of a preemption because their task was found in the C library and computed on.
    pub reminders: u64,
    /// Tasks taken from another CPU's queue.
    pub steals: u64,
    /// Tasks created and ended.
    pub spawned: u64,
    /// See `spawned`.
    pub exited: u64,
    /// Times that a worker found nothing to do and slept.
    pub sleeps: u64,
    /// Times that a worker was blocked in the kernel and a spare took its queue.
    pub takeovers: u64,
    /// The shortest time after which the runtime checks whether a running task must yield, if it does: the policy's, or
    /// the mechanism's minimum ([`crate::Mechanism::shortest_quantum`]) if the policy's default is shorter.
    pub quantum: Option<Ns>,
    /// Kernel threads that run tasks, or wait for a CPU to run them on.
    pub kernel_threads: usize,
    /// Tasks that wait, per run queue.
    pub queue_lengths: Vec<usize>,
    /// Why other processes cannot read these counters, if they cannot (`heddle_telemetry`).
    pub unseen: Option<String>,
}
