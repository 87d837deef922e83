//! When requests are due: a Poisson process, fixed by its seed.

use super::mix::{Mix, Op, unit};
use heddle_core::{Ns, Rng};

/// A request and its due time, counted from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The intended send time. Latencies count from here, whether or not the sender was punctual.
    pub at: Ns,
    /// The operation.
    pub op: Op,
    /// The key, or the first key of a range.
    pub key: u64,
}

/// An endless Poisson stream of requests; equal seeds give equal streams.
#[derive(Debug)]
pub struct Arrivals {
    rng: Rng,
    mean_gap_ns: f64,
    // A float: rounding each gap to whole nanoseconds would shift the rate of fast streams.
    at_ns: f64,
    mix: Mix,
    keys: usize,
}

impl Arrivals {
    /// `rate` requests a second of `mix`, over `keys` keys that are equally likely.
    ///
    /// # Panics
    /// If `rate` is not above zero or `keys` is zero; [`super::LoadOptions`] checks both.
    pub fn new(seed: u64, rate: f64, mix: Mix, keys: usize) -> Arrivals {
        assert!(rate > 0.0 && rate.is_finite(), "a rate above zero");
        assert!(keys > 0, "at least one key");
        Arrivals { rng: Rng::new(seed), mean_gap_ns: 1e9 / rate, at_ns: 0.0, mix, keys }
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        // 1 - u lies in (0, 1], so that the logarithm is finite.
        self.at_ns -= (1.0 - unit(&self.rng)).ln() * self.mean_gap_ns;
        let op = self.mix.draw(&self.rng);
        let key = self.rng.below(self.keys) as u64;
        Some(Arrival { at: Ns(self.at_ns as u64), op, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arrivals(seed: u64, rate: f64) -> Arrivals {
        Arrivals::new(seed, rate, "get=95,scan=5".parse().unwrap(), 1000)
    }

    proptest! {
        #[test]
        fn gaps_are_exponential(seed: u64, rate in 100.0..1e6f64) {
            let n = 50_000;
            let times: Vec<f64> = arrivals(seed, rate).take(n + 1).map(|a| a.at.0 as f64).collect();
            let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) * rate / 1e9).collect();
            let mean = gaps.iter().sum::<f64>() / n as f64;
            let var = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n as f64;
            // In units of the mean gap both are 1; the standard errors are 1/sqrt(n) and sqrt(8/n).
            prop_assert!((mean - 1.0).abs() < 6.0 / (n as f64).sqrt(), "mean {mean}");
            prop_assert!((var - 1.0).abs() < 6.0 * (8.0 / n as f64).sqrt(), "variance {var}");
            // Memorylessness, not only two moments: P(gap > 1) = 1/e.
            let over = gaps.iter().filter(|&&g| g > 1.0).count() as f64 / n as f64;
            prop_assert!((over - (-1.0f64).exp()).abs() < 3.0 / (n as f64).sqrt(), "tail {over}");
        }

        #[test]
        fn a_seed_fixes_the_stream(seed: u64) {
            let (a, b) = (arrivals(seed, 5e3), arrivals(seed, 5e3));
            prop_assert!(a.zip(b).take(1000).all(|(a, b)| a == b && a.key < 1000));
        }
    }
}
