//! The highest load that an objective allows.

use super::{Pool, Slo, with_load};
use crate::{Outcome, Scenario, SimError, run};
use heddle_metrics::human;
use std::collections::VecDeque;

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

/// Runs a scenario: [`run`](crate::run()), or a policy that is not in the registry.
pub(crate) type Simulate<'s> = &'s (dyn Fn(&Scenario) -> Result<Outcome, SimError> + Sync);

/// Finds the highest load at which `scenario` keeps `slo`, by bisection between zero and the CPUs'
/// capacity, to within `tolerance` (a share, above 0). A run without a steady state does not keep it.
/// Takes a run per halving: 8 for [`TOLERANCE`].
///
/// Assumes that more load never makes things better. If a percentile is noisy, this holds only within
/// its confidence interval, which limits the precision of the answer.
///
/// Threads of the pool that have nothing to do run the halvings ahead, for either outcome of this one, so that two or
/// three may be done at a time. The answer is the same.
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
    capacity_by(&run, scenario, slo, tolerance, pool)
}

/// [`capacity`], with runs made by `simulate`.
pub(crate) fn capacity_by(
    simulate: Simulate<'_>,
    scenario: &Scenario,
    slo: &Slo,
    tolerance: f64,
    pool: &Pool<'_>,
) -> Result<Capacity, SimError> {
    let tolerance = tolerance.max(1e-6);
    let (mut best, mut bad) = (Capacity::NONE, 1.0);
    // Runs made ahead, by their loads.
    let mut ahead: Vec<(f64, Result<Outcome, SimError>)> = Vec::new();
    while bad - best.load > tolerance {
        let load = f64::midpoint(best.load, bad);
        let scenario = with_load(scenario, load)?;
        pool.begin(&format!("{} at {}", scenario.policy, human(load * 100.0, "%")))?;
        if !ahead.iter().any(|&(of, _)| of == load) {
            let loads = halvings((best.load, bad), tolerance, pool.idle());
            // An error matters only where the bisection comes.
            let outcomes =
                pool.map(&loads, |_, &load| Ok(simulate(&with_load(&scenario, load)?)))?;
            ahead = loads.into_iter().zip(outcomes).collect();
        }
        let at = ahead.iter().position(|&(of, _)| of == load).expect("it was run just now");
        let outcome = ahead.swap_remove(at).1?;
        match slo.holds(&outcome) {
            true => best = Capacity { load, rate: scenario.rate(), outcome: Some(outcome) },
            false => bad = load,
        }
    }
    Ok(best)
}

/// Returns the load at which a bisection between `low` and `high` continues, then those after it, whichever way it
/// goes: `count` of them, or fewer if it ends before.
fn halvings((low, high): (f64, f64), tolerance: f64, count: usize) -> Vec<f64> {
    let mut intervals = VecDeque::from([(low, high)]);
    let mut loads = Vec::new();
    while let Some((low, high)) = intervals.pop_front()
        && loads.len() < count
    {
        if high - low > tolerance {
            let load = f64::midpoint(low, high);
            loads.push(load);
            intervals.extend([(low, load), (load, high)]);
        }
    }
    loads
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
    fn the_capacity_does_not_depend_on_the_threads() {
        let slo = "p99 <= 10us".parse().unwrap();
        let found = [1, 2, 3, 8].map(|threads| {
            capacity(&scenario(), &slo, 0.02, &Pool::default().threads(threads)).unwrap()
        });
        assert!(found.iter().all(|one| *one == found[0]) && found[0].load > 0.3);
    }

    #[test]
    fn halvings_go_both_ways_until_the_tolerance() {
        assert_eq!(halvings((0.0, 1.0), 0.3, 2), [0.5, 0.25]);
        assert_eq!(halvings((0.0, 1.0), 0.3, 9), [0.5, 0.25, 0.75]);
    }

    #[test]
    fn an_unattainable_slo_has_no_capacity() {
        let slo = "mean <= 100ns".parse().unwrap();
        let found = capacity(&scenario(), &slo, 0.1, &Pool::default()).unwrap();
        assert_eq!((found.load, found.outcome), (0.0, None));
    }
}
