//! For each policy, the highest load that keeps an objective, and the quantum that allows it.

use super::{Capacity, Pool, Slo, TOLERANCE, capacity, with_quantum};
use crate::costs::PreemptionSource;
use crate::{Scenario, SimError};
use heddle_core::Ns;

/// The results of a sweep for one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySweep {
    /// The policy as it was written.
    pub policy: String,
    /// Its capacity as written.
    pub written: Capacity,
    /// The quantum with the highest capacity, and that capacity; `None` if the policy has no quantum,
    /// or the machine cannot preempt.
    pub best: Option<(Ns, Capacity)>,
    /// The capacity with each quantum tried, from the shortest; those around the best are precise, the
    /// others only to within [`COARSE`].
    pub tried: Vec<(Ns, Capacity)>,
}

/// The precision with which quanta are first compared.
pub const COARSE: f64 = 0.02;

/// A bisection to run.
struct Job {
    /// The index of its scenario.
    of: usize,
    quantum: Option<Ns>,
    scenario: Scenario,
    tolerance: f64,
}

/// For each of `scenarios`, which differ in their policies: finds the capacity as written and with each
/// of `quanta`, if the policy has one; then again around the best quantum, finer, at the geometric
/// means with its neighbours.
///
/// A run that is short for its machine does not reveal a slow overload, and a capacity near 1 is then
/// too high: give a scenario thousands of requests per CPU. Among quanta with the same capacity, the
/// longest is best: it preempts least.
///
/// # Errors
/// As [`capacity()`].
/// As [`capacity()`].
pub fn sweep(
    scenarios: &[Scenario],
    slo: &Slo,
    quanta: &[Ns],
    pool: &Pool<'_>,
) -> Result<Vec<PolicySweep>, SimError> {
    let first: Vec<Job> =
        scenarios.iter().enumerate().flat_map(|(of, s)| first_jobs(of, s, quanta)).collect();
    let coarse = work(&first, slo, pool)?;
    let mut found: Vec<PolicySweep> =
        (0..scenarios.len()).map(|of| gather(&scenarios[of], &first, &coarse, of)).collect();
    let second: Vec<Job> = found
        .iter()
        .enumerate()
        .flat_map(|(of, f)| second_jobs(of, &scenarios[of], &f.tried))
        .collect();
    let fine = work(&second, slo, pool)?;
    for (job, capacity) in second.iter().zip(fine) {
        let quantum = job.quantum.expect("only quanta are refined");
        let tried = &mut found[job.of].tried;
        tried.retain(|(known, _)| *known != quantum);
        tried.push((quantum, capacity));
    }
    found.iter_mut().for_each(|found| {
        found.tried.sort_by_key(|&(quantum, _)| quantum);
        found.best = best(&found.tried).map(|at| found.tried[at].clone());
    });
    Ok(found)
}

/// Returns how many runs a sweep takes, for a progress line.
pub fn steps(scenarios: &[Scenario], quanta: usize) -> u64 {
    let halvings = |tolerance: f64| (1.0 / tolerance).log2().ceil() as u64;
    let steps = |scenario: &Scenario| {
        let quanta = if has_quantum(scenario) { quanta as u64 } else { 0 };
        halvings(TOLERANCE) * (1 + quanta.min(3)) + halvings(COARSE) * quanta
    };
    scenarios.iter().map(steps).sum()
}

fn has_quantum(scenario: &Scenario) -> bool {
    scenario.preemption.by != PreemptionSource::Disabled
        && super::quantum_of(&scenario.policy).is_some()
}

fn first_jobs(of: usize, scenario: &Scenario, quanta: &[Ns]) -> Vec<Job> {
    let written = Job { of, quantum: None, scenario: scenario.clone(), tolerance: TOLERANCE };
    let quanta = quanta.iter().filter(|_| has_quantum(scenario));
    let tried = quanta.filter_map(|&quantum| job(of, scenario, quantum, COARSE));
    [written].into_iter().chain(tried).collect()
}

/// Returns `None` if the policy cannot have this quantum.
fn job(of: usize, scenario: &Scenario, quantum: Ns, tolerance: f64) -> Option<Job> {
    let policy = with_quantum(&scenario.policy, quantum)?;
    let scenario = Scenario { policy, ..scenario.clone() };
    Some(Job { of, quantum: Some(quantum), scenario, tolerance })
}

fn work(jobs: &[Job], slo: &Slo, pool: &Pool<'_>) -> Result<Vec<Capacity>, SimError> {
    pool.map(jobs, |_, job| capacity(&job.scenario, slo, job.tolerance, pool))
}

fn gather(scenario: &Scenario, jobs: &[Job], capacities: &[Capacity], of: usize) -> PolicySweep {
    let mine = || jobs.iter().zip(capacities).filter(|(job, _)| job.of == of);
    let written = mine().find(|(job, _)| job.quantum.is_none()).expect("it is the first job");
    let tried = mine().filter_map(|(job, capacity)| Some((job.quantum?, capacity.clone())));
    PolicySweep {
        policy: scenario.policy.clone(),
        written: written.1.clone(),
        best: None,
        tried: tried.collect(),
    }
}

/// Returns the quantum with the highest capacity, and the geometric means with its neighbours.
fn second_jobs(of: usize, scenario: &Scenario, tried: &[(Ns, Capacity)]) -> Vec<Job> {
    let Some(at) = best(tried) else { return Vec::new() };
    let middle = |a: usize, b: usize| rounded((tried[a].0.0 as f64 * tried[b].0.0 as f64).sqrt());
    let mut quanta = vec![tried[at].0];
    quanta.extend(at.checked_sub(1).map(|before| middle(before, at)));
    quanta.extend((at + 1 < tried.len()).then(|| middle(at, at + 1)));
    quanta.into_iter().filter_map(|quantum| job(of, scenario, quantum, TOLERANCE)).collect()
}

/// Rounds to two digits: a quantum that people would write.
fn rounded(ns: f64) -> Ns {
    let unit = 10f64.powf(ns.log10().floor() - 1.0).max(1.0);
    Ns(((ns / unit).round() * unit) as u64)
}

/// Returns which of `tried` has the highest capacity; of equals, the last.
fn best(tried: &[(Ns, Capacity)]) -> Option<usize> {
    (0..tried.len()).max_by(|&a, &b| tried[a].1.load.total_cmp(&tried[b].1.load))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Preemption;

    fn scenario(policy: &str) -> Scenario {
        let mix = "short: 99% 1us, long: 1% 1ms".parse().unwrap();
        let ideal = Scenario::ideal(policy, 4, mix, 0.5);
        Scenario { requests: 20_000, preemption: Preemption::named("uintr").unwrap(), ..ideal }
    }

    #[test]
    fn preemption_allows_more_and_a_quantum_between_is_best() {
        let scenarios = [scenario("fifo"), scenario("shinjuku:quantum=1ms")];
        let slo = "p99.9 slowdown <= 50".parse().unwrap();
        let quanta = [1, 20, 400].map(Ns::from_us);
        let found = sweep(&scenarios, &slo, &quanta, &Pool::default()).unwrap();
        assert_eq!(found[0].best, None, "FIFO has no quantum");
        let (quantum, best) = found[1].best.as_ref().unwrap();
        assert!(best.load > found[0].written.load + 0.1, "{} {}", best.load, found[0].written.load);
        assert!(best.load > found[1].written.load && *quantum < Ns::from_us(400), "{quantum}");
        assert!(
            found[1].tried.len() >= 4 && found[1].tried.is_sorted_by_key(|&(quantum, _)| quantum)
        );
        let again = sweep(&scenarios, &slo, &quanta, &Pool::default().threads(1)).unwrap();
        assert_eq!(again, found, "whatever the threads");
    }

    #[test]
    fn quanta_are_round() {
        for (ns, round) in [(3_162.3, 3_200), (44_721.0, 45_000), (999_600.0, 1_000_000), (4.4, 4)]
        {
            assert_eq!(rounded(ns), Ns(round));
        }
    }

    #[test]
    fn without_preemption_there_is_no_quantum_to_choose() {
        let none = Preemption::named("none").unwrap();
        let scenarios = [Scenario { preemption: none, ..scenario("shinjuku") }];
        let slo = "p50 <= 1ms".parse().unwrap();
        let found = sweep(&scenarios, &slo, &[Ns::from_us(5)], &Pool::default()).unwrap();
        assert!(found[0].best.is_none() && found[0].tried.is_empty());
        assert_eq!(steps(&scenarios, 1), 8);
    }
}
