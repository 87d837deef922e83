//! Latencies of one run.

use heddle_core::Ns;
use serde::{Deserialize, Serialize};

use crate::counts::Counts;

const LIMIT: u64 = 100_000_000_000;

/// A latency histogram from 1 ns to 100 s with three significant digits (0.1 % error at most).
///
/// A longer latency is recorded as 100 s and counted in [`saturated`](Histogram::saturated): an overload
/// shows in the result instead of stopping the run. Memory is fixed at about 220 KiB; recording does not
/// allocate. Serialises to a few kilobytes, which is how a load process passes its samples on.
///
/// ```
/// use heddle_core::Ns;
/// use heddle_metrics::Histogram;
///
/// let mut h = Histogram::new();
/// (1..=1000).for_each(|us| h.record(Ns::from_us(us)));
/// let p99 = h.p99().as_us_f64();
/// assert!((990.0..991.0).contains(&p99));
///
/// let text = serde_json::to_string(&h).unwrap();
/// assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), h);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(Counts<LIMIT>);

impl Histogram {
    /// The longest latency that is recorded exactly: 100 s.
    pub const LIMIT: Ns = Ns(LIMIT);

    /// Returns an empty histogram.
    pub fn new() -> Histogram {
        Histogram(Counts::new())
    }

    /// Adds one latency.
    #[inline]
    pub fn record(&mut self, latency: Ns) {
        self.record_n(latency, 1);
    }

    /// Adds `n` equal latencies.
    pub fn record_n(&mut self, latency: Ns, n: u64) {
        self.0.record_n(latency.0, n);
    }

    /// Adds all samples of `other`, as if they had been recorded here.
    pub fn merge(&mut self, other: &Histogram) {
        self.0.merge(&other.0);
    }

    /// Returns the latency that `percent` (0 to 100) of the samples do not exceed; [`Ns::ZERO`] when empty.
    /// At most 0.1 % above the exact percentile, and never above [`max`](Histogram::max).
    pub fn percentile(&self, percent: f64) -> Ns {
        Ns(self.0.percentile(percent))
    }

    /// The median.
    pub fn p50(&self) -> Ns {
        self.percentile(50.0)
    }

    /// The 90th percentile.
    pub fn p90(&self) -> Ns {
        self.percentile(90.0)
    }

    /// The 99th percentile.
    pub fn p99(&self) -> Ns {
        self.percentile(99.0)
    }

    /// The 99.9th percentile.
    pub fn p999(&self) -> Ns {
        self.percentile(99.9)
    }

    /// The longest latency, exact up to the limit; [`Ns::ZERO`] when empty.
    pub fn max(&self) -> Ns {
        Ns(self.0.max())
    }

    /// The mean, exact up to rounding if no sample saturated; [`Ns::ZERO`] when empty.
    pub fn mean(&self) -> Ns {
        Ns(self.0.mean().round() as u64)
    }

    /// The non-empty buckets, shortest first: the longest latency that each can hold (never above
    /// [`max`](Histogram::max)) and its number of samples. Their running sum gives every percentile.
    pub fn buckets(&self) -> impl Iterator<Item = (Ns, u64)> + '_ {
        self.0.buckets().map(|(end, count)| (Ns(end), count))
    }

    /// The number of samples.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// Whether there are no samples. Percentiles are meaningless then.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The number of samples longer than 100 s.
    pub fn saturated(&self) -> u64 {
        self.0.saturated()
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl Extend<Ns> for Histogram {
    fn extend<I: IntoIterator<Item = Ns>>(&mut self, latencies: I) {
        latencies.into_iter().for_each(|latency| self.record(latency));
    }
}
