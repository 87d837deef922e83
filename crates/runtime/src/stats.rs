//! Counters of a runtime.

use heddle_core::Ns;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writer: a plain add, no locked instruction.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counted by a worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerStats {
    pub(crate) switches: Counter,
    pub(crate) preemptions: Counter,
    pub(crate) steals: Counter,
    pub(crate) spawned: Counter,
    pub(crate) exited: Counter,
    pub(crate) sleeps: Counter,
}

/// Counted by the ticker.
#[derive(Debug, Default)]
pub(crate) struct TickerStats {
    pub(crate) sent: Counter,
    pub(crate) send_ns: Counter,
    pub(crate) skipped: Counter,
    pub(crate) takeovers: Counter,
}

/// What a runtime has done since it started. Counters only grow, except the queue lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The runtime's name, if it has one.
    pub runtime: Option<String>,
    /// Times that a worker began or went on to run a task.
    pub switches: u64,
    /// Tasks taken off their worker before they gave it up.
    pub preemptions: u64,
    /// Preemptions asked of the mechanism; some find the task in a section that holds preemption off, and come later.
    pub preemptions_sent: u64,
    /// Time that the ticker spent on sending those.
    pub preemption_send_time: Ns,
    /// Quanta that ended while nothing else waited for the CPU, so that no preemption was sent (Aspen, section 3.2).
    pub preemptions_skipped: u64,
    /// Tasks taken from another CPU's queue.
    pub steals: u64,
    /// Tasks created and ended.
    pub spawned: u64,
    /// See `spawned`.
    pub exited: u64,
    /// Times that a worker found nothing to do and slept.
    pub sleeps: u64,
    /// Times that a worker was stuck in the kernel and a spare one took its queue.
    pub takeovers: u64,
    /// Kernel threads that the runtime has made: workers and spares.
    pub kernel_threads: usize,
    /// Tasks that wait, per run queue.
    pub queue_lengths: Vec<usize>,
}
