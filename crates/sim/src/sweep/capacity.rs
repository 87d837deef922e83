//! The highest load that an objective allows.

use super::{Pool, Slo, with_load};
use crate::{Outcome, Scenario, SimError, run};
use heddle_metrics::human;

/// The default precision of a capacity: half a per cent of the CPUs' time.
pub const TOLERANCE: f64 = 0.005;

/// The highest load at which an objective is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// As a share of the CPUs' capacity; 0 if no load was found that keeps it.
    pub load: f64,
    /// The same in requests per second.
    pub rate: f64,
    /// The outcome of the run at this load; `None` if there is none.
    pub outcome: Option<Outcome>,
}

impl Capacity {
    /// No load at all.
    const NONE: Capacity = Capacity { load: 0.0, rate: 0.0, outcome: None };
}

/// Finds the highest load at which `scenario` keeps `slo`, by bisection between zero and the CPUs'
/// capacity, to within `tolerance` (a share, above 0). A run without a steady state does not keep it.
/// Takes a run per halving: 8 for [`TOLERANCE`].
///
/// Assumes that more load never makes things better. If a percentile is noisy, this holds only within
/// its confidence interval, which limits the precision of the answer.
///
/// # Errors
/// As [`run`](crate::run()) and [`with_load`]; [`SimError::Interrupted`] if the pool's listener ends
/// it.
pub fn capacity(
    scenario: &Scenario,
    slo: &Slo,
    tolerance: f64,
    pool: &Pool<'_>,
) -> Result<Capacity, SimError> {
    let (mut best, mut bad) = (Capacity::NONE, 1.0);
    while bad - best.load > tolerance.max(1e-6) {
        let load = f64::midpoint(best.load, bad);
        let scenario = with_load(scenario, load)?;
        pool.begin(&format!("{} at {}", scenario.policy, human(load * 100.0, "%")))?;
        let outcome = run(&scenario)?;
        match slo.holds(&outcome) {
            true => best = Capacity { load, rate: scenario.rate(), outcome: Some(outcome) },
            false => bad = load,
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        let mix = "exp(1us)".parse().unwrap();
        Scenario { requests: 50_000, ..Scenario::ideal("fifo", 1, mix, 0.5) }
    }

    /// M/M/1: the mean response is 1 us / (1 - load), so that 5 us allow 80 %.
    #[test]
    fn the_capacity_is_that_of_theory() {
        let slo = "mean <= 5us".parse().unwrap();
        let found = capacity(&scenario(), &slo, TOLERANCE, &Pool::default()).unwrap();
        assert!((found.load - 0.8).abs() < 0.02, "{}", found.load);
        assert!((found.rate / 1e6 - found.load).abs() < 1e-9 && slo.holds(&found.outcome.unwrap()));
    }

    #[test]
    fn an_unattainable_slo_has_no_capacity() {
        let slo = "mean <= 100ns".parse().unwrap();
        let found = capacity(&scenario(), &slo, 0.1, &Pool::default()).unwrap();
        assert_eq!((found.load, found.outcome), (0.0, None));
    }
}
