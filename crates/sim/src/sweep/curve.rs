//! One scenario at several loads.

use super::Pool;
use crate::scenario::ScenarioError;
use crate::{Load, Outcome, Scenario, SimError, run};
use heddle_metrics::human;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns `scenario` at `load`, a share of its CPUs' capacity.
///
/// # Errors
/// [`SimError::Scenario`] if requests do not have a rate of their own (a closed loop, a trace).
pub fn with_load(scenario: &Scenario, load: f64) -> Result<Scenario, SimError> {
    if !scenario.arrivals.is_open() {
        let problem = format!(
            "`workload.arrivals`: the load of `{}` cannot be varied; expected poisson, periodic or mmpp",
            scenario.arrivals
        );
        return Err(ScenarioError { place: None, problem }.into());
    }
    Ok(Scenario { load: Load::Share(load), ..scenario.clone() })
}

/// Runs `scenario` at each of `loads` (shares, in any order), from the lowest to the first without a
/// steady state, which is the last in the result.
///
/// # Errors
/// As [`run()`] and [`with_load`]; [`SimError::Interrupted`] if the pool's listener ends it.
pub fn curve(
    scenario: &Scenario,
    loads: &[f64],
    pool: &Pool<'_>,
) -> Result<Vec<Outcome>, SimError> {
    Ok(curves(std::slice::from_ref(scenario), loads, pool)?.remove(0))
}

/// [`curve`] for each of `scenarios`, all runs spread over the pool together.
///
/// # Errors
/// As [`curve`].
pub fn curves(
    scenarios: &[Scenario],
    loads: &[f64],
    pool: &Pool<'_>,
) -> Result<Vec<Vec<Outcome>>, SimError> {
    let mut loads = loads.to_vec();
    loads.sort_by(f64::total_cmp);
    let points: Vec<(usize, f64)> =
        (0..scenarios.len()).flat_map(|s| loads.iter().map(move |&load| (s, load))).collect();
    // For each curve, the first point known to have no steady state: points after it are not run.
    let ends: Vec<AtomicUsize> = scenarios.iter().map(|_| AtomicUsize::new(usize::MAX)).collect();
    let outcomes = pool.map(&points, |at, &(s, load)| {
        if at > ends[s].load(Ordering::Relaxed) {
            return Ok(None);
        }
        let scenario = with_load(&scenarios[s], load)?;
        pool.begin(&format!("{} at {}", scenario.policy, human(load * 100.0, "%")))?;
        let outcome = run(&scenario)?;
        if outcome.unstable.is_some() {
            ends[s].fetch_min(at, Ordering::Relaxed);
        }
        Ok(Some(outcome))
    })?;
    let per_curve = outcomes.chunks(loads.len().max(1)).map(|curve| curve.iter().cloned());
    let mut curves: Vec<Vec<Outcome>> = per_curve.map(up_to_the_end).collect();
    curves.resize(scenarios.len(), Vec::new());
    Ok(curves)
}

/// Returns the points up to the first without a steady state; some after it may have been run as well.
fn up_to_the_end(points: impl Iterator<Item = Option<Outcome>>) -> Vec<Outcome> {
    let mut points: Vec<Outcome> = points.flatten().collect();
    let end = points.iter().position(|outcome| outcome.unstable.is_some());
    points.truncate(end.map_or(points.len(), |end| end + 1));
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Ns;

    fn scenario() -> Scenario {
        let mut scenario = Scenario::ideal("fifo", 2, "exp(1us)".parse().unwrap(), 0.5);
        (scenario.requests, scenario.costs.switch) = (20_000, Ns(300));
        scenario
    }

    #[test]
    fn a_curve_rises_and_ends_where_there_is_no_steady_state() {
        let loads = [0.9, 0.2, 0.95, 0.5];
        let one = curve(&scenario(), &loads, &Pool::default().threads(1)).unwrap();
        assert_eq!(one.len(), 3, "0.2, 0.5, and 0.9, which is 1.17 with the switches");
        assert!(one[0].mean.value < one[1].mean.value && one[2].unstable.is_some());
        assert_eq!(curve(&scenario(), &loads, &Pool::default().threads(2)).unwrap(), one);
    }

    #[test]
    fn a_closed_loop_has_no_curve() {
        let arrivals = "closed(tasks=4, think=1us)".parse().unwrap();
        let error =
            curve(&Scenario { arrivals, ..scenario() }, &[0.5], &Pool::default()).unwrap_err();
        assert!(error.to_string().contains("cannot be varied; expected poisson"), "{error}");
    }
}
