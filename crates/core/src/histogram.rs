//! Durations counted in buckets, without allocation: the one histogram of programs in the kernel, processes, agents and
//! reports.

use crate::Ns;
use core::array;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// Buckets for each power of two: a bucket is at most an eighth of its value wide.
const PARTS: usize = 8;

/// A log-linear histogram of numbers, usually nanoseconds: 8 buckets for each power of two, a relative error of at most
/// 1/8. Its memory is the counts alone.
#[derive(Clone, PartialEq, Eq)]
#[repr(transparent)]
pub struct Histogram {
    /// How many values each bucket holds; see [`Histogram::bucket`].
    pub counts: [u64; Histogram::BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; Histogram::BUCKETS] }
    }
}

impl fmt::Debug for Histogram {
    /// The buckets that are not empty, by their upper ends.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

impl Histogram {
    /// The number of buckets.
    pub const BUCKETS: usize = (64 - 2) * PARTS;

    /// Returns the bucket of `value`: below 8 each value has its own; above, the three bits after the leading one
    /// choose it.
    #[inline(always)]
    pub const fn bucket(value: u64) -> usize {
        let power = (value | PARTS as u64).ilog2() as usize - 3;
        power * PARTS + (value >> power) as usize
    }

    /// Returns the largest value of a bucket. Buckets end at 7, 15, 31 and at each power of two minus one beyond.
    ///
    /// # Panics
    /// If there is no such bucket.
    pub const fn upper(bucket: usize) -> u64 {
        assert!(bucket < Histogram::BUCKETS);
        if bucket < PARTS {
            return bucket as u64;
        }
        let power = bucket / PARTS - 1;
        let next = ((bucket - power * PARTS) as u128 + 1) << power;
        (next - 1) as u64
    }

    /// Returns the smallest value of a bucket; panics as [`Histogram::upper`] does.
    pub const fn lower(bucket: usize) -> u64 {
        if bucket == 0 { 0 } else { Histogram::upper(bucket - 1) + 1 }
    }

    /// Counts one value. Counts stay at the largest number rather than wrap.
    #[inline]
    pub fn record(&mut self, value: u64) {
        let count = &mut self.counts[Histogram::bucket(value)];
        *count = count.saturating_add(1);
    }

    /// Counts all values of `other`, too.
    pub fn merge(&mut self, other: &Histogram) {
        let both = self.counts.iter_mut().zip(&other.counts);
        both.for_each(|(own, theirs)| *own = own.saturating_add(*theirs));
    }

    /// Returns what was counted since `earlier`, a copy of the same histogram. A bucket that holds less now counts as
    /// empty.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let less = |at: usize| self.counts[at].saturating_sub(earlier.counts[at]);
        Histogram { counts: array::from_fn(less) }
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|&count| count == 0)
    }

    /// Returns the upper end of the bucket up to which at least a `share` (0 to 1) of the values lie: the quantile, too
    /// large by an eighth at most. `None` if nothing was counted.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let (mut left, total) = (0, self.count());
        let wanted = share * total as f64;
        // Rounded up; the standard library's `ceil` is not in `core`.
        let rank = wanted as u64 + u64::from((wanted as u64 as f64) < wanted);
        let rank = rank.clamp(1, total.max(1));
        let found = self.counts.iter().position(|&count| {
            left = count.saturating_add(left);
            left >= rank
        });
        found.map(Histogram::upper)
    }

    /// Returns the sum of the values, each taken as the middle of its bucket: right within a sixteenth.
    #[must_use]
    pub fn estimated_sum(&self) -> f64 {
        let sum = |(at, &count): (usize, &u64)| {
            count as f64 * (Histogram::lower(at) as f64 + Histogram::upper(at) as f64) / 2.0
        };
        self.counts.iter().enumerate().map(sum).sum()
    }

    /// Returns the buckets that are not empty: upper end and count, in order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.counts.iter().enumerate();
        all.filter(|(_, count)| **count > 0).map(|(at, count)| (Histogram::upper(at), *count))
    }
}

/// The same histogram in memory, written by one thread and read by others.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicHistogram {
    counts: [AtomicU64; Histogram::BUCKETS],
}

impl Default for AtomicHistogram {
    fn default() -> AtomicHistogram {
        AtomicHistogram { counts: array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl AtomicHistogram {
    /// Counts one value. For the only thread that records: a plain add, no locked instruction.
    #[inline]
    pub fn record(&self, value: u64) {
        let count = &self.counts[Histogram::bucket(value)];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Counts one duration in nanoseconds, as [`AtomicHistogram::record`] does.
    #[inline]
    pub fn record_time(&self, time: Ns) {
        self.record(time.0);
    }

    /// Takes over what was counted elsewhere. For the only thread that writes.
    pub fn set(&self, counted: &Histogram) {
        let counts = self.counts.iter().zip(&counted.counts);
        counts.for_each(|(own, count)| own.store(*count, Ordering::Relaxed));
    }

    /// Returns a copy. Values that are counted meanwhile may be in it or not.
    #[must_use]
    pub fn load(&self) -> Histogram {
        Histogram { counts: array::from_fn(|at| self.counts[at].load(Ordering::Relaxed)) }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }

    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = (any::<u64>(), 0..64u32).prop_map(|(value, shift)| value >> shift);
        proptest::collection::vec(value, 0..50)
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_values_and_is_an_eighth_wide(value in any::<u64>(), shift in 0..64u32) {
            let value = value >> shift;
            let at = Histogram::bucket(value);
            prop_assert!(at < Histogram::BUCKETS);
            prop_assert!((Histogram::lower(at)..=Histogram::upper(at)).contains(&value));
            prop_assert!(Histogram::upper(at) - value <= value / 8);
        }

        #[test]
        fn merging_counts_both_and_a_difference_takes_one_away(one in values(), other in values()) {
            let mut both = of(&one);
            both.merge(&of(&other));
            prop_assert_eq!(&both, &of(&[&one[..], &other].concat()));
            prop_assert_eq!(both.since(&of(&one)), of(&other));
            prop_assert_eq!(both.count(), (one.len() + other.len()) as u64);
        }

        #[test]
        fn a_quantile_is_right_within_a_bucket(mut values in values(), share in 0.0..=1.0f64) {
            let found = of(&values).quantile(share);
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).max(1);
            prop_assert_eq!(found, values.get(rank - 1).map(|&v| Histogram::upper(Histogram::bucket(v))));
        }

        #[test]
        fn the_sum_is_right_within_a_sixteenth(values in values()) {
            let sum: f64 = values.iter().map(|&value| value as f64).sum();
            prop_assert!((of(&values).estimated_sum() - sum).abs() <= sum / 16.0);
        }
    }

    #[test]
    fn buckets_end_at_each_power_of_two_and_the_last_at_the_largest_number() {
        for power in 3..64 {
            assert_eq!(Histogram::lower(Histogram::bucket(1 << power)), 1 << power);
        }
        assert_eq!(Histogram::upper(Histogram::BUCKETS - 1), u64::MAX);
        assert_eq!(core::mem::size_of::<Histogram>(), 3968);
    }

    #[test]
    fn an_atomic_one_counts_alike() {
        let (shared, values) = (AtomicHistogram::default(), [0, 7, 8, 1000, u64::MAX]);
        values.iter().for_each(|&value| shared.record(value));
        assert_eq!(shared.load(), of(&values));
        assert_eq!(of(&values).buckets().count(), 5);
        shared.set(&of(&[9]));
        assert_eq!(shared.load(), of(&[9]));
    }

    #[test]
    fn nothing_has_no_quantile() {
        assert!(Histogram::default().is_empty());
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
