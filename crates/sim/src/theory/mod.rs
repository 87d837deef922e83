//! Closed forms of queueing theory, with which a simulated or measured queue must agree.
//!
//! | model | function | source |
//! |---|---|---|
//! | M/M/1 | [`single::mm1_mean_sojourn`], [`single::mm1_sojourn_quantile`] | Kleinrock 1975, ch. 3 |
//! | M/G/1 FCFS | `fcfs_mean_wait`, `fcfs_second_wait`, `fcfs_mean_slowdown` in [`single`] | Kleinrock 1975, ch. 5 |
//! | M/G/1 PS | [`single::ps_sojourn`], [`single::ps_slowdown`] | Harchol-Balter 2013, part VII |
//! | M/D/1 | [`deterministic`]: `md1_mean_sojourn`, `md1_wait_cdf`, `md1_sojourn_quantile` | Erlang 1909; Franx 2001 |
//! | M/G/1 SRPT | [`srpt::exponential_mean_sojourn`], [`srpt::mix_mean_sojourn`] | Schrage and Miller 1966 |
//! | M/M/k | `erlang_c`, `mmk_mean_sojourn`, `mmk_wait_quantile` in [`many`] | Erlang 1917; Kleinrock 1975, ch. 3 |
//! | E_k/M/1: round-robin dispatch to k servers | [`dispatch::round_robin_mean_sojourn`] | Kleinrock 1975, ch. 6 |
//! | best of d choices, many servers | [`dispatch::choices_mean_sojourn`] | Mitzenmacher 2001 |
//! | dispatch by size interval (SITA) | [`dispatch::sita`] | Harchol-Balter 2013, ch. 24 |
//! | priority classes | `non_preemptive_wait`, `preemptive_sojourn`, `conserved_wait` in [`priority`] | Cobham 1954 |
//! | round robin with a switch cost | [`quantum::max_load`], [`quantum::max_load_approx`] | work conservation |
//! | confidence interval of n batches | [`student::two_sided`] | Abramowitz and Stegun 1964, 26.7 |
//!
//! Arrivals are Poisson unless a function says otherwise. `rho` is the load of one server (arrival rate
//! times mean service time, over the number of servers). Times are in the unit in which the caller
//! gives the service time, rates per that unit. The wait is the time in the queue; the sojourn is the
//! wait plus the service.
//!
//! Every function returns `None` if the queue has no steady state (`rho >= 1`) or an argument is
//! outside its stated range (a negative or infinite time, no servers, a probability above one), and
//! never panics.
//!
//! Textbooks: L. Kleinrock, "Queueing Systems", volumes 1 (1975) and 2 (1976); M. Harchol-Balter,
//! "Performance Modeling and Design of Computer Systems" (2013). FCFS is by Pollaczek and Khinchine;
//! Kleinrock 1976, ch. 3, also covers priority classes. Papers are named where they are used.

pub mod deterministic;
pub mod dispatch;
pub mod many;
mod moments;
pub mod priority;
pub mod quantum;
pub mod single;
pub mod srpt;
pub mod student;

pub use moments::{Mix, Moments};

/// Returns the load, if a queue under it has a steady state.
fn stable(rho: f64) -> Option<f64> {
    (0.0..1.0).contains(&rho).then_some(rho)
}

/// Returns the time (or rate), if it is above zero and finite.
fn positive(value: f64) -> Option<f64> {
    (value > 0.0 && value.is_finite()).then_some(value)
}

/// Returns the probability, if a quantile exists for it: from zero to below one.
fn quantile_rank(q: f64) -> Option<f64> {
    (0.0..1.0).contains(&q).then_some(q)
}

#[cfg(test)]
mod testing {
    use super::Mix;

    /// Asserts that `got` agrees with a figure that was printed with this many decimals.
    #[track_caller]
    pub fn assert_digits(got: Option<f64>, figure: f64, decimals: i32) {
        let got = got.expect("the queue is stable");
        assert!((got - figure).abs() <= 0.5001 * 0.1f64.powi(decimals), "{got} is not {figure}");
    }

    /// Asserts that two ways lead to the same number.
    #[track_caller]
    pub fn assert_same(a: Option<f64>, b: Option<f64>) {
        let (a, b) = (a.expect("stable"), b.expect("stable"));
        assert!((a - b).abs() <= 1e-9 * a.abs().max(1.0), "{a} is not {b}");
    }

    /// 90 % take 0.5 and 10 % take 5.5: mean 1, second moment 3.25.
    pub fn bimodal() -> Mix {
        Mix::new(&[(0.9, 0.5), (0.1, 5.5)]).expect("a distribution")
    }
}
