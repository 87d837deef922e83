//! The histogram under [`Histogram`](crate::Histogram) and [`Slowdown`](crate::Slowdown).
//!
//! The buckets are those of an HDR histogram with three significant digits, and so are its percentiles: the tests
//! compare it with the crate hdrhistogram. With that crate, whose code to record a value is not inlined, a simulation,
//! which records three values for each request, takes a tenth longer. Beside the buckets, three numbers are kept
//! exactly: the largest value, the sum, and the number of values cut off at the limit.

use serde::{Deserialize, Serialize};

/// Below this power of two, each value has a bucket of its own; from each power of two on, this many buckets go to the
/// next one, so that a bucket is at most 0.1 % wide.
const DIGITS: u32 = 10;
const HALF: u64 = 1 << DIGITS;

/// Samples from 0 to `LIMIT`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Wire", try_from = "Wire")]
pub(crate) struct Counts<const LIMIT: u64> {
    buckets: Vec<u64>,
    count: u64,
    saturated: u64,
    max: u64,
    sum: u64,
}

/// Returns how far the values of one bucket are apart, as a power of two.
#[inline]
fn power(value: u64) -> u32 {
    (value | HALF).ilog2() - DIGITS
}

#[inline]
fn bucket(value: u64) -> usize {
    let power = power(value);
    ((u64::from(power) << DIGITS) + (value >> power)) as usize
}

/// Returns the smallest value of a bucket, and the smallest of the next one.
fn bounds(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    let power = (bucket >> DIGITS).saturating_sub(1);
    let first = bucket - (power << DIGITS);
    (first << power, (first + 1) << power)
}

impl<const LIMIT: u64> Counts<LIMIT> {
    pub(crate) fn new() -> Self {
        Counts { buckets: vec![0; bucket(LIMIT) + 1], count: 0, saturated: 0, max: 0, sum: 0 }
    }

    #[inline]
    pub(crate) fn record_n(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        let kept = value.min(LIMIT);
        if value > LIMIT {
            self.saturated = self.saturated.saturating_add(n);
        }
        let bucket = &mut self.buckets[bucket(kept)];
        *bucket = bucket.saturating_add(n);
        self.count = self.count.saturating_add(n);
        self.max = self.max.max(kept);
        self.sum = self.sum.saturating_add(kept.saturating_mul(n));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (own, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *own = own.saturating_add(*other);
        }
        self.count = self.count.saturating_add(other.count);
        self.saturated = self.saturated.saturating_add(other.saturated);
        self.max = self.max.max(other.max);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// The end of the bucket that holds the percentile, capped at the largest sample.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let quantile = percent.clamp(0.0, 100.0) / 100.0;
        // Of more than 2^53 samples, the product may be rounded up beyond the last.
        let rank = ((quantile * self.count as f64).ceil() as u64).min(self.count).max(1);
        let mut below = 0u64;
        let reaches = |&count: &u64| {
            below = below.saturating_add(count);
            below >= rank
        };
        let Some(at) = self.buckets.iter().position(reaches) else { return 0 };
        let (first, next) = bounds(at);
        if quantile == 0.0 { first } else { (next - 1).min(self.max) }
    }

    /// The non-empty buckets, in order: the largest sample that each can hold, and its number of samples.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.recorded().map(|(at, count)| ((bounds(at).1 - 1).min(self.max), count))
    }

    fn recorded(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.buckets.iter().copied().enumerate().filter(|&(_, count)| count > 0)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn saturated(&self) -> u64 {
        self.saturated
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum as f64 / (self.count() as f64).max(1.0)
    }
}

/// The serialised form: non-empty buckets only, each as its distance from the previous one and its count.
/// A run of a million samples takes a few kilobytes.
#[derive(Serialize, Deserialize)]
struct Wire {
    max: u64,
    sum: u64,
    saturated: u64,
    /// `gap, count, gap, count, ...`
    buckets: Vec<u64>,
}

impl<const LIMIT: u64> From<Counts<LIMIT>> for Wire {
    fn from(counts: Counts<LIMIT>) -> Wire {
        let mut before = 0;
        let mut buckets = Vec::new();
        for (at, count) in counts.recorded() {
            let (start, _) = bounds(at);
            buckets.extend([start - before, count]);
            before = start;
        }
        Wire { max: counts.max, sum: counts.sum, saturated: counts.saturated, buckets }
    }
}

/// The text is not a serialised histogram: truncated, altered, or something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a histogram: {0}; use the unaltered output of a load process of the same version")]
pub struct DecodeError(&'static str);

impl<const LIMIT: u64> TryFrom<Wire> for Counts<LIMIT> {
    type Error = DecodeError;

    fn try_from(wire: Wire) -> Result<Self, DecodeError> {
        let mut counts = Counts::new();
        let mut value = 0u64;
        let pairs = wire.buckets.chunks_exact(2);
        if !pairs.remainder().is_empty() {
            return Err(DecodeError("a bucket without its count"));
        }
        for pair in pairs {
            value = value
                .checked_add(pair[0])
                .filter(|&v| v <= LIMIT)
                .ok_or(DecodeError("a value over the limit"))?;
            counts.record_n(value, pair[1]);
        }
        if wire.saturated > counts.count() || counts.max > wire.max || wire.max > LIMIT {
            return Err(DecodeError("totals that contradict the buckets"));
        }
        Ok(Counts { saturated: wire.saturated, max: wire.max, sum: wire.sum, ..counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: u64 = 100_000_000_000;

    proptest! {
        /// For any samples, buckets and percentiles are those of the crate hdrhistogram.
        #[test]
        fn it_is_an_hdr_histogram(
            samples in prop::collection::vec((0..63u32, any::<u64>(), 1..1000u64), 1..100),
            percent in 0.0..=100.0,
        ) {
            let mut counts = Counts::<LIMIT>::new();
            let mut hdr = hdrhistogram::Histogram::<u64>::new_with_bounds(1, LIMIT, 3).unwrap();
            for (shift, value, n) in samples {
                let value = value >> (1 + shift);
                counts.record_n(value, n);
                hdr.saturating_record_n(value.min(LIMIT), n);
            }
            let end = |value| hdr.highest_equivalent(value).min(counts.max());
            let recorded = hdr.iter_recorded().map(|b| (end(b.value_iterated_to()), b.count_at_value()));
            prop_assert!(counts.buckets().eq(recorded));
            prop_assert_eq!(counts.count(), hdr.len());
            for percent in [percent, 0.0, 50.0, 99.9, 100.0] {
                let expected = hdr.value_at_percentile(percent).min(counts.max());
                prop_assert_eq!(counts.percentile(percent), expected, "{} %", percent);
            }
        }
    }

    /// Each bucket begins where the one before it ends, up to the limit, at the edges of the crate hdrhistogram.
    #[test]
    fn each_bucket_has_the_edges_of_an_hdr_histogram() {
        let hdr = hdrhistogram::Histogram::<u64>::new_with_bounds(1, LIMIT, 3).unwrap();
        let mut end = 0;
        for at in 0..Counts::<LIMIT>::new().buckets.len() {
            let (first, next) = bounds(at);
            assert_eq!(first, end);
            assert_eq!((bucket(first), bucket(next - 1)), (at, at));
            assert_eq!(
                (first, next),
                (hdr.lowest_equivalent(first), hdr.next_non_equivalent(first))
            );
            end = next;
        }
        assert!(end > LIMIT);
    }

    #[test]
    fn the_last_of_very_many_samples_is_found() {
        let mut counts = Counts::<LIMIT>::new();
        counts.record_n(5, (1 << 60) - 1);
        counts.record_n(7, (1 << 60) - 2);
        assert_eq!(counts.percentile(100.0), 7);
    }
}
