//! Slowdown: response time divided by service time.

use heddle_core::Ns;
use serde::{Deserialize, Serialize};

use crate::counts::Counts;

/// The resolution is a thousandth: a slowdown of 1 is 1000 steps.
const STEPS: f64 = 1_000.0;
const LIMIT: u64 = 1_000_000_000;

/// A histogram of slowdowns (response time / service time) from 0.001 to a million, with three digits.
///
/// Slowdown treats short and long requests alike: a GET of 1.5 us that waits 15 us has a slowdown of 11, a
/// SCAN of 1 ms that waits as long has 1.015.
///
/// ```
/// use heddle_core::Ns;
/// use heddle_metrics::Slowdown;
///
/// let mut s = Slowdown::new();
/// s.record(Ns::from_us(30), Ns::from_us(10));
/// assert_eq!(s.percentile(50.0), 3.0);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slowdown(Counts<LIMIT>);

impl Slowdown {
    /// Returns an empty histogram.
    pub fn new() -> Slowdown {
        Slowdown(Counts::new())
    }

    /// Adds one request. A service time below 1 ns counts as 1 ns.
    #[inline]
    pub fn record(&mut self, response: Ns, service: Ns) {
        // Processors convert signed numbers in one step, and have 292 years in them.
        let signed = |time: Ns| time.0.min(i64::MAX as u64) as i64 as f64;
        let steps = signed(response) / signed(service.max(Ns(1))) * STEPS;
        // As `f64::round`, which is a call of a library on processors without SSE 4.1.
        let whole = steps as i64;
        self.0.record_n(whole as u64 + u64::from(steps - whole as f64 >= 0.5), 1);
    }

    /// Adds all samples of `other`.
    pub fn merge(&mut self, other: &Slowdown) {
        self.0.merge(&other.0);
    }

    /// Returns the slowdown that `percent` (0 to 100) of the requests do not exceed; 0 when empty.
    pub fn percentile(&self, percent: f64) -> f64 {
        self.0.percentile(percent) as f64 / STEPS
    }

    /// The mean slowdown; 0 when empty.
    pub fn mean(&self) -> f64 {
        self.0.mean() / STEPS
    }

    /// The largest slowdown; 0 when empty.
    pub fn max(&self) -> f64 {
        self.0.max() as f64 / STEPS
    }

    /// The non-empty buckets, smallest first: the largest slowdown that each can hold and its number of requests.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.0.buckets().map(|(end, count)| (end as f64 / STEPS, count))
    }

    /// The number of requests.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// The number of requests with a slowdown above a million, recorded as a million.
    pub fn saturated(&self) -> u64 {
        self.0.saturated()
    }
}

impl Default for Slowdown {
    fn default() -> Slowdown {
        Slowdown::new()
    }
}
