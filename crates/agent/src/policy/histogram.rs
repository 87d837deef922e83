//! Durations counted in buckets, without allocation after creation.

use heddle_core::Ns;

/// Buckets for each power of two: a bucket is at most an eighth of its value wide.
const PARTS: usize = 8;
const BUCKETS: usize = (64 - 2) * PARTS;

/// A log-linear histogram: a relative error of at most 1/8, and no allocation when it records.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    longest: Ns,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS].into(), total: 0, longest: Ns::ZERO }
    }
}

/// Below [`PARTS`] each value has its bucket; above, the three bits after the leading one choose it.
fn bucket(value: u64) -> usize {
    let power = (value | PARTS as u64).ilog2() as usize - 3;
    power * PARTS + (value >> power) as usize
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < PARTS {
        return bucket as u64;
    }
    let power = bucket / PARTS - 1;
    let next = u128::from((bucket - power * PARTS) as u64 + 1) << power;
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, time: Ns) {
        self.counts[bucket(time.0)] += 1;
        self.total += 1;
        self.longest = self.longest.max(time);
    }

    /// Returns the number of durations counted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns the longest duration, exactly.
    #[must_use]
    pub fn longest(&self) -> Ns {
        self.longest
    }

    /// Returns the duration that a `share` (0 to 1) of them do not exceed; zero if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Ns {
        let rank = ((share * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        let found = self.counts.iter().position(|&count| {
            seen += count;
            seen >= rank
        });
        found.map_or(Ns::ZERO, |at| Ns(upper(at)).min(self.longest))
    }

    /// Copies the counts of `other` without allocating.
    pub fn copy_from(&mut self, other: &Histogram) {
        self.counts.copy_from_slice(&other.counts);
        (self.total, self.longest) = (other.total, other.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_holds_its_values_and_is_an_eighth_wide(value in any::<u64>(), shift in 0..64u32) {
            let value = value >> shift;
            let at = bucket(value);
            prop_assert!(at < BUCKETS && value <= upper(at));
            prop_assert!(at == 0 || upper(at - 1) < value);
            prop_assert!(upper(at) - value <= value / 8);
        }
    }

    #[test]
    fn quantiles_are_right_within_a_bucket() {
        let mut times = Histogram::default();
        assert_eq!(times.quantile(0.5), Ns::ZERO);
        (1..=1000).for_each(|us| times.record(Ns::from_us(us)));
        for (share, us) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let (found, true_one) = (times.quantile(share), Ns::from_us(us));
            assert!(found >= true_one && found.0 <= true_one.0 * 9 / 8, "{share}: {found}");
        }
        assert_eq!((times.len(), times.longest()), (1000, Ns::from_ms(1)));
    }
}
