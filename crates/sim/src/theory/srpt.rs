//! Shortest remaining processing time on one server: the least mean sojourn that any policy can have.
//!
//! L. E. Schrage and L. W. Miller, "The queue M/G/1 with the shortest remaining processing time
//! discipline", 1966; Harchol-Balter 2013, part VII. With `rho(x) = lambda E[S; S <= x]`, the load of
//! the jobs of at most `x`, a job of size `x` waits `lambda E[min(S, x)^2] / (2 (1 - rho(x))^2)` until
//! it is first served (a longer job counts for its last `x`), and stays for `int_0^x dt / (1 - rho(t))`
//! from then on (only jobs shorter than its remainder get in between).

use super::{Mix, positive, stable};

/// Sizes beyond this many means do not occur among exponential ones: `exp(-80)` is 1e-35.
const LONGEST: f64 = 80.0;

/// Points of an integral per mean; Simpson's rule then has an error below 1e-9.
const POINTS: f64 = 100.0;

/// Mean sojourn of M/M/1 under SRPT, sizes being known. O(1): one integral of 8,000 points, good to 1e-9 of
/// itself for `rho` up to 1 - 1e-6.
///
/// ```
/// use heddle_sim::theory::{single, srpt};
///
/// // What knowing the sizes is worth at a load of 0.9.
/// let known = srpt::exponential_mean_sojourn(0.9, 1.0).unwrap();
/// let unknown = single::mm1_mean_sojourn(0.9, 1.0).unwrap();
/// assert!(unknown > 2.8 * known);
/// ```
pub fn exponential_mean_sojourn(rho: f64, service: f64) -> Option<f64> {
    let (rho, service) = (stable(rho)?, positive(service)?);
    // The stay is integrated by parts: a moment dt of it belongs to all jobs larger than t, a share exp(-t).
    let density =
        |x: f64| (-x).exp() * (exponential_wait(rho, x) + exponential_idle(rho, x).recip());
    Some(service * integral(density, LONGEST))
}

/// Mean sojourn of a job of this `size` among exponential ones of mean `service` under SRPT. O(min(size
/// / service, 80)), accuracy as [`exponential_mean_sojourn`].
pub fn exponential_sojourn(rho: f64, service: f64, size: f64) -> Option<f64> {
    let (rho, service) = (stable(rho)?, positive(service)?);
    let x = positive(size)? / service;
    let near = x.min(LONGEST);
    let stay = integral(|t| exponential_idle(rho, t).recip(), near) + (x - near) / (1.0 - rho);
    Some(service * (exponential_wait(rho, x) + stay))
}

/// Mean sojourn under SRPT of all jobs of a mix of fixed sizes; exact. O(parts squared). Ties as in
/// [`mix_sojourn`].
pub fn mix_mean_sojourn(rho: f64, sizes: &Mix) -> Option<f64> {
    let rho = stable(rho)?;
    Some(sizes.mean_of(|size| mix_sojourn_at(rho, sizes, size)))
}

/// Mean sojourn of a job of this `size` in an SRPT queue of a mix of fixed sizes; exact. O(parts).
///
/// Jobs of one size are served in order of arrival. So jobs already there count up to and including
/// this size, later arrivals only below it: the square in the wait becomes
/// `(1 - rho(x-)) (1 - rho(x))`.
pub fn mix_sojourn(rho: f64, sizes: &Mix, size: f64) -> Option<f64> {
    Some(mix_sojourn_at(stable(rho)?, sizes, positive(size)?))
}

fn mix_sojourn_at(rho: f64, sizes: &Mix, x: f64) -> f64 {
    let lambda = rho / sizes.moments().mean;
    let below = lambda * sizes.mean_of(|size| if size < x { size } else { 0.0 });
    let up_to = lambda * sizes.mean_of(|size| if size <= x { size } else { 0.0 });
    let work = 0.5 * lambda * sizes.mean_of(|size| size.min(x).powi(2));
    work / ((1.0 - below) * (1.0 - up_to)) + mix_stay(lambda, sizes, x)
}

/// The integral of the stay, piece by piece: the load below `t` only changes at the sizes of the mix.
fn mix_stay(lambda: f64, sizes: &Mix, x: f64) -> f64 {
    let (mut stay, mut from, mut idle) = (0.0, 0.0, 1.0);
    for &(p, size) in sizes.parts().iter().take_while(|&&(_, size)| size < x) {
        stay += (size - from) / idle;
        (from, idle) = (size, idle - lambda * p * size);
    }
    stay + (x - from) / idle
}

/// The wait of size `x`, both in means.
fn exponential_wait(rho: f64, x: f64) -> f64 {
    // E[min(S, x)^2] = 2 (1 - exp(-x) (1 + x)).
    let work = rho * (1.0 - (-x).exp() * (1.0 + x));
    work / exponential_idle(rho, x).powi(2)
}

/// `1 - rho(x)`, written without cancellation at a high load.
fn exponential_idle(rho: f64, x: f64) -> f64 {
    (1.0 - rho) + rho * (-x).exp() * (1.0 + x)
}

/// Returns the integral of `f` from 0 to `upper` by Simpson's rule.
fn integral(f: impl Fn(f64) -> f64, upper: f64) -> f64 {
    let pairs = (upper * POINTS / 2.0).ceil().max(1.0) as u32;
    let step = upper / f64::from(2 * pairs);
    let at = |i: u32| f(step * f64::from(i));
    let inner: f64 = (1..=pairs).map(|i| 4.0 * at(2 * i - 1) + 2.0 * at(2 * i)).sum();
    step / 3.0 * (at(0) + inner - at(2 * pairs))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_digits, assert_same, bimodal};
    use super::super::{deterministic, single};
    use super::*;

    #[test]
    fn exponential_sizes_have_the_figures_of_schrage_and_miller() {
        assert_digits(exponential_mean_sojourn(0.5, 1.0), 1.4254, 4);
        assert_digits(exponential_mean_sojourn(0.7, 1.0), 1.8746, 4);
        assert_digits(exponential_mean_sojourn(0.9, 1.0), 3.5521, 4);
    }

    #[test]
    fn the_mean_is_that_of_all_sizes() {
        let of = |x: f64| (-x).exp() * exponential_sojourn(0.8, 1.0, x.max(1e-9)).unwrap();
        let mean = exponential_mean_sojourn(0.8, 1.0).unwrap();
        assert!((integral(of, 40.0) - mean).abs() < 1e-7);
    }

    #[test]
    fn a_fine_mix_tends_to_the_exponential() {
        // Equal shares, each at the mean of its slice of the distribution.
        let cells = 1_000;
        let upper_tail = |i: u32| {
            let p = 1.0 - f64::from(i) / f64::from(cells);
            if p > 0.0 { p * (1.0 - p.ln()) } else { 0.0 }
        };
        let share = 1.0 / f64::from(cells);
        let part = |i| (share, (upper_tail(i) - upper_tail(i + 1)) / share);
        let mix = Mix::new(&(0..cells).map(part).collect::<Vec<_>>()).unwrap();
        let (fine, exact) = (mix_mean_sojourn(0.9, &mix), exponential_mean_sojourn(0.9, 1.0));
        assert!((fine.unwrap() / exact.unwrap() - 1.0).abs() < 1e-3, "{fine:?} {exact:?}");
    }

    #[test]
    fn one_size_is_served_in_order_of_arrival() {
        let fixed = Mix::new(&[(1.0, 20.0)]).unwrap();
        assert_same(mix_mean_sojourn(0.7, &fixed), deterministic::md1_mean_sojourn(0.7, 20.0));
    }

    #[test]
    fn a_bimodal_short_job_waits_for_short_remainders_alone() {
        // By hand: E[min(S, 0.5)^2] is 0.25, the short ones are a load of 0.315.
        assert_same(mix_sojourn(0.7, &bimodal(), 0.5), Some(0.5 * 0.7 * 0.25 / 0.685 + 0.5));
        let long = 0.5 * 0.7 * 3.25 / (0.685 * 0.3) + 0.5 + 5.0 / 0.685;
        assert_same(mix_sojourn(0.7, &bimodal(), 5.5), Some(long));
    }

    #[test]
    fn no_policy_has_a_lower_mean() {
        for rho in [0.0, 0.1, 0.5, 0.8, 0.95, 0.999] {
            let shared = single::ps_sojourn(rho, 1.0).unwrap() + 1e-9;
            let in_order = single::fcfs_mean_sojourn(rho, &bimodal().moments()).unwrap() + 1e-9;
            assert!(exponential_mean_sojourn(rho, 1.0).unwrap() <= shared);
            assert!(mix_mean_sojourn(rho, &bimodal()).unwrap() <= shared.min(in_order));
        }
    }

    #[test]
    fn times_scale_with_the_unit() {
        let in_us = exponential_mean_sojourn(0.7, 1.0).map(|sojourn| 1_000.0 * sojourn);
        assert_same(exponential_mean_sojourn(0.7, 1_000.0), in_us);
        assert_same(
            exponential_sojourn(0.7, 10.0, 2_000.0),
            exponential_sojourn(0.7, 1.0, 200.0).map(|t| 10.0 * t),
        );
    }

    #[test]
    fn out_of_range_has_no_figure() {
        assert_eq!(exponential_mean_sojourn(1.0, 1.0), None);
        assert_eq!(exponential_sojourn(0.5, 1.0, 0.0), None);
        assert_eq!(mix_mean_sojourn(1.0, &bimodal()), None);
        assert_eq!(mix_sojourn(0.5, &bimodal(), f64::INFINITY), None);
    }
}
