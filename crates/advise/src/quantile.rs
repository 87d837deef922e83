//! Quantiles of samples, and intervals of estimates.

use heddle_core::Ns;
use serde::{Deserialize, Serialize};

/// Returns the smallest of `times` that a `share` (0 to 1) of them do not exceed; zero if there are none. Reorders
/// them; O(n).
#[must_use]
pub fn quantile(times: &mut [Ns], share: f64) -> Ns {
    if times.is_empty() {
        return Ns::ZERO;
    }
    let rank = (share * times.len() as f64).ceil().max(1.0) as usize;
    *times.select_nth_unstable(rank.min(times.len()) - 1).1
}

/// An estimate, with the interval that holds 90 % of what resampling gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median of the estimates.
    pub value: f64,
    /// 5 % of the estimates are below.
    pub low: f64,
    /// 5 % of them are above.
    pub high: f64,
}

impl Interval {
    /// Summarises estimates; `None` if there are none, or if one is not a number.
    #[must_use]
    pub fn of(mut estimates: Vec<f64>) -> Option<Interval> {
        if estimates.is_empty() || estimates.iter().any(|one| one.is_nan()) {
            return None;
        }
        estimates.sort_by(f64::total_cmp);
        let at = |share: f64| estimates[((estimates.len() - 1) as f64 * share).round() as usize];
        Some(Interval { value: at(0.5), low: at(0.05), high: at(0.95) })
    }

    /// Whether `value` lies inside.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        let mut times: Vec<Ns> = (1..=100).rev().map(Ns).collect();
        for (share, expected) in [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (1.0, 100)] {
            assert_eq!(quantile(&mut times, share), Ns(expected), "{share}");
        }
        assert_eq!(quantile(&mut [], 0.5), Ns::ZERO);
    }

    #[test]
    fn an_interval_leaves_out_the_extremes() {
        let interval = Interval::of((0..=100).map(f64::from).collect()).unwrap();
        assert_eq!((interval.low, interval.value, interval.high), (5.0, 50.0, 95.0));
        assert!(interval.holds(5.0) && !interval.holds(4.0));
        assert_eq!(Interval::of(vec![]), None);
        assert_eq!(Interval::of(vec![1.0, f64::NAN]), None);
    }
}
