//! Requests: how long they compute, what the long ones do, and when they arrive.

use super::part::Part;
use heddle_core::{Ns, Rng};
use serde::{Deserialize, Serialize};

/// The share of long requests, where there are any.
const LONG: f64 = 0.01;

/// What a request does beside computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Nothing.
    Compute,
    /// A long one sleeps in the kernel instead, which the runtime is not told.
    Sleep,
    /// Each holds one mutex of the standard library for the middle fifth of its time.
    Mutex,
}

/// A mix of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// What requests do.
    pub kind: Kind,
    /// How long a short one computes.
    pub short: Ns,
    /// How long a long one takes; zero if there are none.
    pub long: Ns,
    /// The quantum of `two-queue`.
    pub quantum: Ns,
}

impl Workload {
    /// The workload of a part that has one.
    #[must_use]
    pub fn of(part: Part) -> Option<Workload> {
        let us = Ns::from_us;
        let one = Workload { kind: Kind::Compute, short: us(5), long: us(1_000), quantum: us(100) };
        let ten = Workload { short: us(50), long: us(10_000), quantum: us(1_000), ..one };
        match part {
            Part::Micro | Part::Memory => None,
            Part::OneMs => Some(one),
            Part::TenMs => Some(ten),
            Part::Blocking => Some(Workload { kind: Kind::Sleep, ..ten }),
            Part::Mutex => Some(Workload { kind: Kind::Mutex, ..one }),
            Part::Saturation => Some(Workload { long: Ns::ZERO, ..one }),
        }
    }

    fn long_share(&self) -> f64 {
        if self.long == Ns::ZERO { 0.0 } else { LONG }
    }

    /// Requests per second that take all the time of one worker which does one after the other.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        let share = self.long_share();
        1e9 / (self.short.0 as f64 * (1.0 - share) + self.long.0 as f64 * share)
    }

    /// The requests of a Poisson process of `rate` per second that arrive within `time`. A seed fixes them.
    pub(super) fn arrivals(&self, seed: u64, rate: f64, time: Ns) -> Vec<Arrival> {
        let (rng, share) = (Rng::new(seed), self.long_share());
        let unit = || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let (mut at, mut all) = (0.0, Vec::new());
        loop {
            // 1 - u lies in (0, 1], so that the logarithm is finite.
            at -= (1.0 - unit()).ln() * 1e9 / rate;
            if at >= time.0 as f64 {
                return all;
            }
            all.push(Arrival { at: Ns(at as u64), is_long: unit() < share });
        }
    }
}

/// When a request is due, counted from the start, and its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) at: Ns,
    pub(super) is_long: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capacity_is_that_of_the_mean_request() {
        let mix = Workload::of(Part::OneMs).unwrap();
        assert!((mix.capacity() - 1e9 / 14_950.0).abs() < 1e-6);
        let only = Workload::of(Part::Saturation).unwrap();
        assert!((only.capacity() - 200_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_seed_fixes_arrivals_which_are_as_many_as_the_rate_says() {
        let mix = Workload::of(Part::TenMs).unwrap();
        let of = |seed| mix.arrivals(seed, 10_000.0, Ns::from_secs(10));
        let all = of(1);
        assert_eq!(all, of(1));
        assert_ne!(all, of(2));
        assert!(all.is_sorted_by_key(|arrival| arrival.at));
        // The standard errors are sqrt(100,000) and sqrt(1,000).
        let long = all.iter().filter(|arrival| arrival.is_long).count();
        assert!((98_000..102_000).contains(&all.len()), "{}", all.len());
        assert!((800..1200).contains(&long), "{long}");
        let only = Workload::of(Part::Saturation).unwrap();
        let none = only.arrivals(1, 10_000.0, Ns::from_secs(1));
        assert!(none.iter().all(|arrival| !arrival.is_long));
    }
}
