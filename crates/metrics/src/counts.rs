//! The histogram under [`Histogram`](crate::Histogram) and [`Slowdown`](crate::Slowdown).
//!
//! An HDR histogram keeps three significant digits in buckets. Three numbers are kept exactly beside it:
//! the largest value, the sum, and the number of values cut off at the limit.

use hdrhistogram::Histogram as Hdr;
use serde::{Deserialize, Serialize};

/// Significant decimal digits: a bucket is at most 0.1 % wide.
const DIGITS: u8 = 3;

/// Samples from 0 to `LIMIT`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Wire", try_from = "Wire")]
pub(crate) struct Counts<const LIMIT: u64> {
    hdr: Hdr<u64>,
    saturated: u64,
    max: u64,
    sum: u64,
}

impl<const LIMIT: u64> Counts<LIMIT> {
    pub(crate) fn new() -> Self {
        let hdr = Hdr::new_with_bounds(1, LIMIT, DIGITS).expect("1 <= LIMIT / 2 and 3 <= 5 digits");
        Counts { hdr, saturated: 0, max: 0, sum: 0 }
    }

    pub(crate) fn record_n(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        let kept = value.min(LIMIT);
        if value > LIMIT {
            self.saturated = self.saturated.saturating_add(n);
        }
        self.hdr.saturating_record_n(kept, n);
        self.max = self.max.max(kept);
        self.sum = self.sum.saturating_add(kept.saturating_mul(n));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.hdr.add(&other.hdr).expect("both have the same limit and digits");
        self.saturated = self.saturated.saturating_add(other.saturated);
        self.max = self.max.max(other.max);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// The end of the bucket that holds the percentile, capped at the largest sample.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        self.hdr.value_at_percentile(percent.clamp(0.0, 100.0)).min(self.max)
    }

    /// The non-empty buckets, in order: the largest sample that each can hold, and its number of samples.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let end = |at| self.hdr.highest_equivalent(at).min(self.max);
        self.hdr.iter_recorded().map(move |b| (end(b.value_iterated_to()), b.count_at_value()))
    }

    pub(crate) fn count(&self) -> u64 {
        self.hdr.len()
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

impl<const LIMIT: u64> PartialEq for Counts<LIMIT> {
    fn eq(&self, other: &Self) -> bool {
        self.hdr == other.hdr
            && (self.saturated, self.max, self.sum) == (other.saturated, other.max, other.sum)
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
        for bucket in counts.hdr.iter_recorded() {
            let start = counts.hdr.lowest_equivalent(bucket.value_iterated_to());
            buckets.extend([start - before, bucket.count_at_value()]);
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
