//! Runs cases on all CPUs of this machine.

use super::{Case, Check, Effort, Measure, cases};
use crate::Unstable;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{iter, thread};

/// The measurements of one run of a case.
pub(super) struct Values {
    pub values: Vec<f64>,
    pub unstable: Option<Unstable>,
}

/// Runs all cases, `quick` or in full, on as many threads as this machine has CPUs; calls `progress`
/// with the number of finished runs and the total.
///
/// ```no_run
/// let checks = heddle_sim::validate::run(true, |done, of| eprintln!("{done} of {of}"));
/// assert!(checks.iter().all(|check| check.agrees()));
/// ```
pub fn run(quick: bool, progress: impl Fn(usize, usize) + Sync) -> Vec<Check> {
    let effort = if quick { Effort::Quick } else { Effort::Full };
    run_cases(&cases(), effort, progress)
}

/// Runs these cases, as [`run`].
///
/// # Panics
/// If a scenario is refused.
pub fn run_cases(
    cases: &[Case],
    effort: Effort,
    progress: impl Fn(usize, usize) + Sync,
) -> Vec<Check> {
    let runs = effort.runs() as usize;
    let (next, all) = (AtomicUsize::new(0), cases.len() * runs);
    let (results, done) = (Mutex::new(Vec::with_capacity(all)), AtomicUsize::new(0));
    let work = || {
        while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&at| at < all) {
            let values = cases[at / runs].measure(effort, (at % runs) as u64);
            results.lock().expect("no run panics").push((at, values));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, all);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| iter::repeat_n((), threads).for_each(|()| drop(scope.spawn(work))));
    let mut results = results.into_inner().expect("no run panics");
    results.sort_by_key(|&(at, _)| at);
    let results: Vec<Values> = results.into_iter().map(|(_, values)| values).collect();
    let checks = cases.iter().zip(results.chunks(runs));
    checks.flat_map(|(case, runs)| compare(case, effort, runs)).collect()
}

/// The checks of one case.
fn compare(case: &Case, effort: Effort, runs: &[Values]) -> Vec<Check> {
    let predicted = case.expected.iter().any(|(measure, _)| *measure == Measure::Unstable);
    let unstable = runs.iter().find_map(|run| run.unstable).filter(|_| !predicted);
    let check = |(i, &expected)| {
        let values: Vec<f64> = runs.iter().map(|run| run.values[i]).collect();
        Check::new(case, effort, expected, &values, unstable)
    };
    case.expected.iter().enumerate().map(check).collect()
}
