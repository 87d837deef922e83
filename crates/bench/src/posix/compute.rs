//! Throughput of threads that compute and share a queue under a mutex, four for each CPU.

use std::io;
use std::sync::atomic::AtomicBool;

use super::options::PosixOptions;
use super::part::Part;
use super::programs::Program;
use super::rounds::{self, Case, Comparison, Reading, find};
use super::system::System;
use crate::suite::{PartResult, Target};
use heddle_metrics::{Progress, Row};

/// The case in results.
const CASE: &str = "compute";
/// A system's rate divided by the kernel's of the same round.
pub(super) const KEPT: &str = "jobs_kept";
/// The least share of the kernel's rate.
const LEAST_KEPT: f64 = 0.95;
/// Threads for each CPU.
const FACTOR: usize = 4;

const READING: Reading = Reading {
    metrics: &[("jobs_per_s", "1/s")],
    comparisons: &[Comparison::kept(KEPT, "jobs_per_s")],
    by_wall_clock: true,
};

/// Measures in interleaved rounds.
///
/// # Errors
/// The program does not compile.
pub(super) fn run(
    options: &PosixOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let case = Case {
        name: CASE.into(),
        program: Program::Compute,
        args: vec![
            (options.cpus.len() * FACTOR).to_string(),
            (options.duration.0 / 1_000_000).max(1).to_string(),
        ],
        cpus: options.cpus.clone(),
    };
    let rows = rounds::run(options, Part::Compute, &[case], READING, stop, progress)?;
    let target = target(&options.systems, &rows);
    Ok(PartResult { targets: target.into_iter().collect(), rows, ..PartResult::default() })
}

pub(super) fn target(systems: &[System], rows: &[Row]) -> Option<Target> {
    let chief = System::chief(systems)?;
    let what = format!("compute: {chief}'s jobs per second over the kernel's");
    Some(Target::at_least(&what, find(rows, chief, CASE, KEPT)?, LEAST_KEPT))
}
