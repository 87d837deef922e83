//! Closed forms of queueing theory: what a simulated or measured queue must agree with.
//!
//! | model | function | source |
//! |---|---|---|
//! | M/M/1 | [`single::mm1_mean_sojourn`], [`single::mm1_sojourn_quantile`] | Kleinrock 1975, ch. 3 |
//! | M/G/1 FCFS | [`single::fcfs_mean_wait`], [`single::fcfs_second_wait`], [`single::fcfs_mean_slowdown`] | Kleinrock 1975, ch. 5 (Pollaczek-Khinchine) |
//! | M/G/1 PS | [`single::ps_sojourn`], [`single::ps_slowdown`] | Harchol-Balter 2013, part VII |
//! | M/D/1 | [`deterministic::md1_mean_sojourn`], [`deterministic::md1_wait_cdf`], [`deterministic::md1_sojourn_quantile`] | Erlang 1909; Franx 2001 |
//! | M/G/1 SRPT | [`srpt::exponential_mean_sojourn`], [`srpt::mix_mean_sojourn`] | Schrage and Miller 1966 |
//! | M/M/k | [`many::erlang_c`], [`many::mmk_mean_sojourn`], [`many::mmk_wait_quantile`] | Erlang 1917; Kleinrock 1975, ch. 3 |
//! | E_k/M/1: round-robin dispatch to k servers | [`dispatch::round_robin_mean_sojourn`] | Kleinrock 1975, ch. 6 |
//! | best of d choices, many servers | [`dispatch::choices_mean_sojourn`] | Mitzenmacher 2001 |
//! | dispatch by size interval (SITA) | [`dispatch::sita`] | Harchol-Balter 2013, ch. 24 |
//! | priority classes | [`priority::non_preemptive_wait`], [`priority::preemptive_sojourn`], [`priority::conserved_wait`] | Cobham 1954; Kleinrock 1976, ch. 3 |
//! | round robin with a switch cost | [`quantum::max_load`], [`quantum::max_load_approx`] | work conservation |
//! | confidence interval of n batches | [`student::two_sided`] | Abramowitz and Stegun 1964, 26.7 |
//!
//! Arrivals are Poisson unless a function says otherwise. `rho` is the load of one server (arrival rate by mean service
//! time, over the number of servers). A time is in whatever unit the caller gives the service time in, a rate is per that
//! unit. The wait is the time in the queue, the sojourn is the wait and the service.
//!
//! Every function returns `None` where the queue has no steady state (`rho >= 1`) and where an argument is outside its
//! stated range (a negative or infinite time, no servers, a probability above one), and never panics.
//!
//! Textbooks: L. Kleinrock, "Queueing Systems", volumes 1 (1975) and 2 (1976); M. Harchol-Balter, "Performance Modeling
//! and Design of Computer Systems" (2013). Papers are named where they are used.

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

/// The load, if a queue under it has a steady state.
fn stable(rho: f64) -> Option<f64> {
    (0.0..1.0).contains(&rho).then_some(rho)
}

/// The time (or rate), if it is above zero and finite.
fn positive(value: f64) -> Option<f64> {
    (value > 0.0 && value.is_finite()).then_some(value)
}

/// The probability, if a quantile can be asked for it: from zero to below one.
fn quantile_rank(q: f64) -> Option<f64> {
    (0.0..1.0).contains(&q).then_some(q)
}

#[cfg(test)]
mod testing {
    use super::Mix;

    /// `got` agrees with a figure that was written down with so many decimals.
    #[track_caller]
    pub fn assert_digits(got: Option<f64>, figure: f64, decimals: i32) {
        let got = got.expect("the queue is stable");
        assert!((got - figure).abs() <= 0.5001 * 0.1f64.powi(decimals), "{got} is not {figure}");
    }

    /// Two ways to the same number.
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
