//! How often the kernel's tables are read.

use std::time::{Duration, Instant};

/// The least time between two reads, on average.
const INTERVAL: Duration = Duration::from_millis(10);
/// This many may follow each other at once, so that a neighbour that answers is known immediately.
const BURST: u32 = 8;
/// Reading takes at most one part in this many of a CPU: big tables are read less often.
const SHARE: u32 = 10;
/// The time after a read that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Limits reads: on average one in ten milliseconds, in bursts of eight.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the reads so far would have happened at the average rate.
    credit: Instant,
    /// No read before this time.
    not_before: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { credit: now, not_before: now }
    }

    /// Returns when the next read may begin.
    pub(super) fn next(&self) -> Instant {
        let earliest = self.credit.checked_sub(INTERVAL * (BURST - 1)).unwrap_or(self.credit);
        earliest.max(self.not_before)
    }

    /// Records a read.
    pub(super) fn record(&mut self, begin: Instant, end: Instant, failed: bool) {
        let cost = end.saturating_duration_since(begin) * (SHARE - 1);
        self.credit = self.credit.max(begin) + INTERVAL.max(cost);
        if failed {
            self.not_before = end + RETRY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_passes_at_once_and_then_one_in_an_interval() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        for _ in 0..BURST {
            assert!(pace.next() <= begin);
            pace.record(begin, begin, false);
        }
        assert_eq!(pace.next(), begin + INTERVAL);
        pace.record(begin + INTERVAL, begin + INTERVAL, false);
        assert_eq!(pace.next(), begin + 2 * INTERVAL);
    }

    #[test]
    fn long_reads_are_rare() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        pace.record(begin, begin + 100 * MS, false);
        assert_eq!(pace.next(), begin + 900 * MS - 7 * INTERVAL);
    }

    #[test]
    fn a_failed_read_is_repeated_after_a_second() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        pace.record(begin, begin, true);
        assert_eq!(pace.next(), begin + RETRY);
    }
}
