//! The scheduler's counters.

use crate::model::Outcome;
use heddle_core::{Histogram, Ns};

/// Classes that are counted separately; those beyond share the last place.
pub const CLASSES: usize = 4;

/// What a scheduler has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rounds.
    pub rounds: u64,
    /// Messages read.
    pub messages: u64,
    /// Messages for which a queue had no room.
    pub lost: u64,
    /// Of those read, messages with nothing new to the agent.
    pub old_messages: u64,
    /// Transactions by [`Outcome`], in the order of its numbers.
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Group commits.
    pub groups: u64,
    /// Threads that CPUs took without asking (the fast path).
    pub taken: u64,
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

/// Durations: their histogram, and the longest exactly.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    /// In nanoseconds.
    pub times: Box<Histogram>,
    /// The longest.
    pub longest: Ns,
}

impl Delays {
    fn record(&mut self, time: Ns) {
        self.times.record(time.0);
        self.longest = self.longest.max(time);
    }

    /// Returns the duration that a `share` (0 to 1) of them do not exceed; zero if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Ns {
        self.times.quantile(share).map_or(Ns::ZERO, |time| Ns(time).min(self.longest))
    }

    /// Copies `other` without allocating.
    fn copy_from(&mut self, other: &Delays) {
        self.times.counts = other.times.counts;
        self.longest = other.longest;
    }
}

/// [`Counts`], and how long threads waited.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The counters.
    pub counts: Counts,
    /// Times from a wakeup to the CPU, by class.
    pub delays: [Delays; CLASSES],
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_bucket_and_the_longest_exactly() {
        let mut delays = Delays::default();
        assert_eq!(delays.quantile(0.5), Ns::ZERO);
        (1..=1000).for_each(|us| delays.record(Ns::from_us(us)));
        for (share, us) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let (found, true_one) = (delays.quantile(share), Ns::from_us(us));
            assert!(found >= true_one && found.0 <= true_one.0 * 9 / 8, "{share}: {found}");
        }
        let mut copy = Delays::default();
        copy.copy_from(&delays);
        assert_eq!((copy.times.count(), copy.quantile(1.0)), (1000, Ns::from_ms(1)));
    }
}
