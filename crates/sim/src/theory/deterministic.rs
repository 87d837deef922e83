//! One server and jobs of equal size: M/D/1, with the distribution of its wait.
//!
//! The textbook form, `P(W <= t) = (1 - rho) sum_{j <= t} (rho (j - t))^j / j! exp(-rho (j - t))` with service 1
//! (Erlang 1909), alternates in sign and its terms grow with `exp(rho t)`: in 64-bit floats, at `rho` 0.9, it is wrong
//! by 1e-9 at `t = 15` and by 0.07 at `t = 30`. So this module uses another sum, of positive terms only
//! (Franx, "A simple solution for the M/D/c waiting time distribution", 2001). Let `k` be the first
//! whole number above `t` and `u = k - t`, at most one service. The work now is at most `t` exactly if
//! `j < k` jobs arrived within the last `u` and at most `k - j` were there before:
//! `P(W <= t) = sum_{j < k} Poisson(j; rho u) P(N <= k - j)`, where `N` is the number of jobs in the
//! system.

use super::{Moments, positive, quantile_rank, single, stable};

/// Waits longer than this many services are out of range: one evaluation takes 16 bytes of memory for
/// each.
const LONGEST: usize = 1 << 20;

/// Poisson probabilities with a mean of at most 1 are below 1e-47 from here on.
const TERMS: usize = 40;

/// Mean sojourn of M/D/1: `service (1 + rho / (2 (1 - rho)))`. O(1). Kleinrock 1975, ch. 5.
pub fn md1_mean_sojourn(rho: f64, service: f64) -> Option<f64> {
    single::fcfs_mean_sojourn(rho, &Moments::fixed(service))
}

/// `P(W <= t)` of M/D/1 FCFS, for `t` from 0 to a million services. O(t / service), see the module for the sum.
///
/// The relative error of each step is a rounding error and none cancel: the sum is good to 1e-10 for
/// `rho` up to 0.9999.
pub fn md1_wait_cdf(rho: f64, service: f64, t: f64) -> Option<f64> {
    let services = t / positive(service)?;
    let mut number = Number::new(stable(rho)?);
    (0.0..LONGEST as f64).contains(&services).then(|| number.wait_cdf(services))
}

/// The wait that a share `q` of the jobs of M/D/1 FCFS stay within, zero if that many do not wait.
/// O(result / service).
///
/// `q` from 0 to below 1. `None` beyond a million services, which for `rho` up to 0.9999 is no `q`
/// below 1 - 1e-10. The relative error is below 1e-6 while `1 - q` is above 1e-6.
pub fn md1_wait_quantile(rho: f64, service: f64, q: f64) -> Option<f64> {
    let (service, q) = (positive(service)?, quantile_rank(q)?);
    let mut number = Number::new(stable(rho)?);
    let above = (0..LONGEST).find(|&t| number.wait_cdf(t as f64) >= q)?;
    Some(if above == 0 { 0.0 } else { service * number.bisect(above as f64, q) })
}

/// The sojourn that a share `q` of the jobs of M/D/1 FCFS stay within: the wait's quantile and one service.
/// Ranges and cost as [`md1_wait_quantile`].
pub fn md1_sojourn_quantile(rho: f64, service: f64, q: f64) -> Option<f64> {
    Some(md1_wait_quantile(rho, service, q)? + service)
}

/// The number of jobs in M/D/1, computed as far as needed.
struct Number {
    rho: f64,
    /// `P(N = n)`.
    exactly: Vec<f64>,
    /// `P(N <= n)`.
    at_most: Vec<f64>,
    /// `P(A > n)`, with A the arrivals during one service.
    arrivals_above: [f64; TERMS],
}

impl Number {
    fn new(rho: f64) -> Number {
        let mut arrivals_above = [0.0; TERMS];
        let mut tail = 0.0;
        for n in (0..TERMS).rev() {
            tail += poisson(rho).nth(n + 1).unwrap_or(0.0);
            arrivals_above[n] = tail;
        }
        Number { rho, exactly: vec![1.0 - rho], at_most: vec![1.0 - rho], arrivals_above }
    }

    /// `P(W <= t)`, `t` in services.
    fn wait_cdf(&mut self, t: f64) -> f64 {
        let k = t as usize + 1;
        while self.at_most.len() <= k {
            self.grow();
        }
        poisson(self.rho * (k as f64 - t)).zip(0..k).map(|(p, j)| p * self.at_most[k - j]).sum()
    }

    /// Adds one more number of jobs. Seen at departures (which see what a random moment sees), services
    /// that lead from `n + 1` down to `n` are as frequent as those that lead from at most `n` to above
    /// it: `P(N = n + 1) P(A = 0) = P(N = 0) P(A > n) + sum_{1 <= i <= n} P(N = i) P(A > n + 1 - i)`.
    fn grow(&mut self) {
        let n = self.exactly.len() - 1;
        let above = |m: usize| self.arrivals_above.get(m).copied().unwrap_or(0.0);
        let busy = (n.saturating_sub(TERMS).max(1)..=n).map(|i| self.exactly[i] * above(n + 1 - i));
        let next = (self.exactly[0] * above(n) + busy.sum::<f64>()) * self.rho.exp();
        self.exactly.push(next);
        self.at_most.push(self.at_most[n] + next);
    }

    /// Finds where the distribution of the wait reaches `q` within the service before `above`.
    fn bisect(&mut self, above: f64, q: f64) -> f64 {
        let (mut low, mut high) = (above - 1.0, above);
        for _ in 0..40 {
            let middle = 0.5 * (low + high);
            *if self.wait_cdf(middle) < q { &mut low } else { &mut high } = middle;
        }
        high
    }
}

/// Returns the first Poisson probabilities for this mean.
fn poisson(mean: f64) -> impl Iterator<Item = f64> {
    let next = move |(j, p): &(usize, f64)| Some((j + 1, p * mean / (j + 1) as f64));
    std::iter::successors(Some((0, (-mean).exp())), next).map(|(_, p)| p).take(TERMS)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_digits, assert_same};
    use super::*;

    /// Erlang's alternating sum, with service 1.
    fn alternating(rho: f64, t: f64) -> f64 {
        let term = |j: u32| {
            let x = rho * (f64::from(j) - t);
            (1..=j).fold((-x).exp(), |product, i| product * x / f64::from(i))
        };
        (1.0 - rho) * (0..=t as u32).map(term).sum::<f64>()
    }

    #[test]
    fn mean_and_tail_have_the_figures_of_the_research() {
        assert_digits(md1_mean_sojourn(0.7, 1.0), 2.1667, 4);
        assert_digits(md1_sojourn_quantile(0.7, 1.0, 0.99), 7.4855, 4);
        assert_digits(md1_mean_sojourn(0.9, 1.0), 5.5, 4);
        assert_digits(md1_sojourn_quantile(0.9, 1.0, 0.99), 22.898, 3);
    }

    #[test]
    fn the_positive_sum_is_erlangs() {
        for rho in [0.05, 0.4, 0.7, 0.95] {
            for t in [0.0, 0.3, 1.0, 2.5, 4.999, 8.2] {
                assert_same(md1_wait_cdf(rho, 1.0, t), Some(alternating(rho, t)));
            }
        }
    }

    #[test]
    fn the_tail_holds_where_the_alternating_sum_has_broken_down() {
        // Erlang's sum in 80 decimal digits.
        assert_same(md1_wait_cdf(0.9, 1.0, 30.5), Some(0.998_316_693_454_724_5));
        assert_same(md1_wait_cdf(0.95, 1.0, 60.25), Some(0.997_893_646_822_886_3));
        let (rho, q) = (0.9999, 0.9999);
        let wait = md1_wait_quantile(rho, 1.0, q).unwrap();
        assert_same(md1_wait_cdf(rho, 1.0, wait), Some(q));
        assert!((wait / lundberg(rho, q) - 1.0).abs() < 1e-8, "{wait} {}", lundberg(rho, q));
        let far = md1_wait_quantile(0.8, 1.0, 1.0 - 1e-6).unwrap();
        assert!((far / lundberg(0.8, 1.0 - 1e-6) - 1.0).abs() < 1e-8, "{far}");
    }

    /// The quantile from the exponential that the tail tends to (Cramer and Lundberg):
    /// `P(W > t) ~ c exp(-decay t)` with `rho (exp(decay) - 1) = decay` and
    /// `c = (1 - rho) / (rho exp(decay) - 1)`.
    fn lundberg(rho: f64, q: f64) -> f64 {
        let step = |decay: f64| (rho * decay.exp_m1() - decay) / (rho * decay.exp() - 1.0);
        let decay = (0..100).fold(2.0, |decay, _| decay - step(decay));
        ((1.0 - rho) / (rho * decay.exp() - 1.0) / (1.0 - q)).ln() / decay
    }

    #[test]
    fn littles_law_counts_the_jobs() {
        for rho in [0.1, 0.7, 0.98] {
            let mut number = Number::new(rho);
            (0..4_000).for_each(|_| number.grow());
            let mean: f64 = number.exactly.iter().enumerate().map(|(n, p)| n as f64 * p).sum();
            assert_same(Some(mean), md1_mean_sojourn(rho, 1.0).map(|sojourn| rho * sojourn));
        }
    }

    #[test]
    fn the_share_without_a_wait_is_the_idle_share() {
        assert_same(md1_wait_cdf(0.6, 25.0, 0.0), Some(0.4));
        assert_eq!(md1_wait_quantile(0.6, 25.0, 0.39), Some(0.0));
        assert_same(
            md1_wait_quantile(0.6, 25.0, 0.9),
            md1_wait_quantile(0.6, 1.0, 0.9).map(|w| 25.0 * w),
        );
    }

    #[test]
    fn out_of_range_has_no_figure() {
        assert_eq!(md1_wait_cdf(1.0, 1.0, 3.0), None);
        assert_eq!(md1_wait_cdf(0.5, 1.0, -1.0), None);
        assert_eq!(md1_wait_cdf(0.5, 1.0, f64::NAN), None);
        assert_eq!(md1_wait_cdf(0.5, 0.0, 1.0), None);
        assert_eq!(md1_sojourn_quantile(0.5, 1.0, 1.0), None);
    }
}
