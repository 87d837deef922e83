//! The scheduler's counters.

use super::Histogram;
use crate::model::Outcome;
use heddle_core::Ns;

/// Classes that are counted separately; those beyond share the last place.
pub const CLASSES: usize = 4;

/// What a scheduler has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rounds.
    pub rounds: u64,
    /// Messages read.
    pub messages: u64,
    /// Of these, messages with nothing new to the agent.
    pub old_messages: u64,
    /// Transactions by [`Outcome`], in the order of its numbers.
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Group commits.
    pub groups: u64,
    /// Threads taken off their CPUs for others.
    pub preemptions: u64,
    /// Threads taken from other CPUs' queues.
    pub steals: u64,
    /// Proposals deferred because the thread may not run there.
    pub deferred: u64,
    /// Commits taken back from occupied CPUs for idle ones.
    pub recalls: u64,
    /// How often all status words were read again.
    pub adoptions: u64,
    /// Assignments whose message did not come in time (P3).
    pub overdue_messages: u64,
}

impl Counts {
    /// Transactions that succeeded.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.outcomes[Outcome::Committed as usize]
    }

    /// Transactions that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.outcomes.iter().sum::<u64>() - self.committed()
    }

    pub(super) fn count(&mut self, outcome: Outcome) {
        self.outcomes[outcome as usize] += 1;
    }
}

/// [`Counts`], and how long threads waited.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The counters.
    pub counts: Counts,
    /// Times from a wakeup to the CPU, by class.
    pub delays: [Histogram; CLASSES],
}

impl Tally {
    pub(super) fn delay(&mut self, class: u8, delay: Ns) {
        self.delays[usize::from(class).min(CLASSES - 1)].record(delay);
    }

    /// Copies the counts of `other` without allocating.
    pub fn copy_from(&mut self, other: &Tally) {
        self.counts = other.counts;
        self.delays.iter_mut().zip(&other.delays).for_each(|(own, theirs)| own.copy_from(theirs));
    }
}
