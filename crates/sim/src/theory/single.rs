//! One server, Poisson arrivals: M/M/1, and M/G/1 in order of arrival and under processor sharing.

use super::{Moments, positive, quantile_rank, stable};

/// Mean sojourn of M/M/1: `service / (1 - rho)`. O(1). Kleinrock 1975, ch. 3.
///
/// `service` is the mean service time. Holds for every order of service that ignores sizes and
/// remaining sizes, because the exponential has no memory.
pub fn mm1_mean_sojourn(rho: f64, service: f64) -> Option<f64> {
    Some(positive(service)? / (1.0 - stable(rho)?))
}

/// The sojourn that a share `q` of the jobs of M/M/1 FCFS stay within: `ln(1 / (1 - q)) * service / (1
/// - rho)`, since the sojourn is exponential. `q` from 0 to below 1. O(1). Kleinrock 1975, ch. 5.
pub fn mm1_sojourn_quantile(rho: f64, service: f64, q: f64) -> Option<f64> {
    Some(-(-quantile_rank(q)?).ln_1p() * mm1_mean_sojourn(rho, service)?)
}

/// Mean wait of M/G/1 FCFS (Pollaczek-Khinchine): `lambda E[S^2] / (2 (1 - rho))`. O(1). Kleinrock 1975, ch. 5.
///
/// Any order without preemption that ignores sizes has the same mean.
///
/// ```
/// use heddle_sim::theory::{Moments, single};
///
/// // Fixed sizes wait half as long as exponential ones.
/// let fixed = single::fcfs_mean_wait(0.8, &Moments::fixed(10.0)).unwrap();
/// let exponential = single::fcfs_mean_wait(0.8, &Moments::exponential(10.0)).unwrap();
/// assert!((exponential / fixed - 2.0).abs() < 1e-12);
/// ```
pub fn fcfs_mean_wait(rho: f64, sizes: &Moments) -> Option<f64> {
    let (rho, sizes) = (stable(rho)?, sizes.checked()?);
    Some(inflow(rho, sizes.mean, sizes.second) / (2.0 * (1.0 - rho)))
}

/// Mean sojourn of M/G/1 FCFS: the mean wait plus the mean service. O(1).
pub fn fcfs_mean_sojourn(rho: f64, sizes: &Moments) -> Option<f64> {
    Some(fcfs_mean_wait(rho, sizes)? + sizes.mean)
}

/// Second moment of the wait of M/G/1 FCFS: `2 E[W]^2 + lambda E[S^3] / (3 (1 - rho))`, in the square
/// of the unit. O(1). Kleinrock 1975, ch. 5 (second derivative of the Pollaczek-Khinchine transform).
pub fn fcfs_second_wait(rho: f64, sizes: &Moments) -> Option<f64> {
    let mean = fcfs_mean_wait(rho, sizes)?;
    Some(2.0 * mean.powi(2) + inflow(rho, sizes.mean, sizes.third) / (3.0 * (1.0 - rho)))
}

/// `lambda E[S^n]`: zero if nothing arrives, even if the moment is infinite.
fn inflow(rho: f64, mean: f64, moment: f64) -> f64 {
    if rho == 0.0 { 0.0 } else { rho / mean * moment }
}

/// Mean slowdown (sojourn over size) of M/G/1 FCFS: `1 + E[W] E[1/S]`, as the wait does not depend on
/// the job's own size. O(1). Harchol-Balter 2013, part VII.
///
/// `inverse_mean` is `E[1/S]`, per unit of time. It is infinite for exponential sizes, and so is the
/// slowdown.
pub fn fcfs_mean_slowdown(rho: f64, sizes: &Moments, inverse_mean: f64) -> Option<f64> {
    Some(1.0 + fcfs_mean_wait(rho, sizes)? * positive(inverse_mean)?)
}

/// Mean sojourn of a job of this `size` under M/G/1 PS: `size / (1 - rho)`, whatever the distribution
/// of the others (insensitivity). O(1). Kleinrock 1976, ch. 4; Harchol-Balter 2013, part VII.
///
/// With the mean size it is the mean sojourn of all jobs.
pub fn ps_sojourn(rho: f64, size: f64) -> Option<f64> {
    Some(positive(size)? * ps_slowdown(rho)?)
}

/// Mean slowdown of M/G/1 PS: `1 / (1 - rho)`, for every size alike. O(1). Kleinrock 1976, ch. 4.
pub fn ps_slowdown(rho: f64) -> Option<f64> {
    Some(1.0 / (1.0 - stable(rho)?))
}

/// The probability of at least `jobs` jobs in M/G/1 PS (and in M/M/1): `rho^jobs`. O(1). Kleinrock 1976, ch. 4.
pub fn ps_at_least(rho: f64, jobs: u32) -> Option<f64> {
    Some(stable(rho)?.powf(f64::from(jobs)))
}

#[cfg(test)]
mod tests {
    use super::super::Mix;
    use super::super::testing::{assert_digits, assert_same, bimodal};
    use super::*;

    #[test]
    fn mm1_has_the_figures_of_the_textbook() {
        assert_digits(mm1_mean_sojourn(0.7, 1.0), 3.3333, 4);
        assert_digits(mm1_sojourn_quantile(0.7, 1.0, 0.5), 2.3105, 4);
        assert_digits(mm1_sojourn_quantile(0.7, 1.0, 0.99), 15.351, 3);
        assert_digits(mm1_sojourn_quantile(0.7, 1.0, 0.999), 23.026, 3);
        assert_digits(mm1_mean_sojourn(0.9, 1.0), 10.0, 4);
        assert_digits(mm1_sojourn_quantile(0.9, 1.0, 0.99), 46.05, 2);
    }

    #[test]
    fn a_bimodal_queue_in_order_of_arrival() {
        let sizes = bimodal().moments();
        let inverse = bimodal().mean_of(f64::recip);
        for (rho, wait, slowdown, decimals) in
            [(0.5, 1.625, 3.9545, 4), (0.7, 3.7917, 7.8939, 4), (0.9, 14.625, 27.591, 3)]
        {
            assert_digits(fcfs_mean_wait(rho, &sizes), wait, decimals);
            assert_digits(fcfs_mean_slowdown(rho, &sizes, inverse), slowdown, decimals);
        }
    }

    #[test]
    fn the_shinjuku_mix_on_one_server() {
        let sizes = Mix::new(&[(0.995, 4.0), (0.005, 10_000.0)]).unwrap().moments();
        assert_digits(fcfs_mean_wait(0.5, &sizes), 4_631.5, 1);
    }

    #[test]
    fn sharing_a_bimodal_queue() {
        assert_digits(ps_sojourn(0.7, bimodal().moments().mean), 3.3333, 4);
        assert_digits(ps_sojourn(0.7, 0.5), 1.6667, 4);
        assert_digits(ps_sojourn(0.7, 5.5), 18.333, 3);
    }

    #[test]
    fn exponential_sizes_make_the_models_one() {
        for rho in [0.0, 0.3, 0.95] {
            let mm1 = mm1_mean_sojourn(rho, 2.5);
            assert_same(fcfs_mean_sojourn(rho, &Moments::exponential(2.5)), mm1);
            assert_same(ps_sojourn(rho, 2.5), mm1);
        }
    }

    #[test]
    fn the_second_moment_of_an_exponential_queue() {
        // W is 0 with probability 1 - rho, else exponential with mean 1 / (1 - rho).
        let expected = 2.0 * 0.6 / 0.4f64.powi(2);
        assert_same(fcfs_second_wait(0.6, &Moments::exponential(1.0)), Some(expected));
    }

    #[test]
    fn a_heavy_tail_has_an_infinite_mean_wait_at_any_load() {
        let pareto = Moments { mean: 3.0, second: f64::INFINITY, third: f64::INFINITY };
        assert_eq!(fcfs_mean_wait(0.1, &pareto), Some(f64::INFINITY));
        assert_eq!(fcfs_second_wait(0.0, &pareto), Some(0.0));
    }

    #[test]
    fn littles_law_counts_the_jobs() {
        let number: f64 = (1..2_000).map(|n| ps_at_least(0.9, n).unwrap()).sum();
        assert_same(Some(number), mm1_mean_sojourn(0.9, 5.0).map(|sojourn| 0.9 / 5.0 * sojourn));
    }

    #[test]
    fn overload_has_no_figure() {
        for rho in [1.0, 1.5, -0.1, f64::NAN, f64::INFINITY] {
            assert_eq!(mm1_mean_sojourn(rho, 1.0), None);
            assert_eq!(fcfs_mean_wait(rho, &Moments::fixed(1.0)), None);
            assert_eq!(ps_slowdown(rho), None);
        }
        assert_eq!(mm1_mean_sojourn(0.5, 0.0), None);
        assert_eq!(mm1_sojourn_quantile(0.5, 1.0, 1.0), None);
    }
}
