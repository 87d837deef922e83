//! Wake-up latency of workers that compute, with as many workers as CPUs, twice as many and four times as many.

use std::io;
use std::sync::atomic::AtomicBool;

use super::options::PosixOptions;
use super::part::Part;
use super::programs::Program;
use super::rounds::{self, Case, Comparison, Reading, find};
use super::system::System;
use crate::suite::{PartResult, Target};
use heddle_metrics::{Progress, Row};

/// The figure that the targets are about.
pub(super) const WAKEUP: &str = "wakeup_p99_ns";
/// The kernel's p99 of wake-ups divided by a system's of the same round.
pub(super) const GAIN: &str = "wakeup_p99_gain";
/// A system's rate divided by the kernel's of the same round.
pub(super) const KEPT: &str = "requests_kept";

const READING: Reading = Reading {
    metrics: &[
        ("wakeup_p50_ns", "ns"),
        (WAKEUP, "ns"),
        ("wakeup_p999_ns", "ns"),
        ("request_p50_ns", "ns"),
        ("request_p99_ns", "ns"),
        ("requests_per_s", "1/s"),
    ],
    comparisons: &[Comparison::gain(GAIN, WAKEUP), Comparison::kept(KEPT, "requests_per_s")],
    by_wall_clock: true,
};

/// Workers per CPU, and how many times lower the p99 must be with them.
const FACTORS: [(usize, Option<f64>); 3] = [(1, None), (2, Some(10.0)), (4, Some(10.0))];
/// The least share of the kernel's rate.
const LEAST_KEPT: f64 = 0.95;

/// The number of cases.
pub(super) const CASES: u64 = FACTORS.len() as u64;

/// Measures in interleaved rounds.
///
/// # Errors
/// The program does not compile.
pub(super) fn run(
    options: &PosixOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let rows = rounds::run(options, Part::Schbench, &cases(options), READING, stop, progress)?;
    Ok(PartResult { targets: targets(&options.systems, &rows), rows, ..PartResult::default() })
}

fn name(factor: usize) -> String {
    format!("schbench-{factor}x")
}

fn cases(options: &PosixOptions) -> Vec<Case> {
    let case = |(factor, _): (usize, Option<f64>)| Case {
        name: name(factor),
        program: Program::Schbench,
        args: vec![
            (options.cpus.len() * factor).to_string(),
            (options.duration.0 / 1_000_000).max(1).to_string(),
            options.operations.to_string(),
        ],
        cpus: options.cpus.clone(),
    };
    FACTORS.into_iter().map(case).collect()
}

pub(super) fn targets(systems: &[System], rows: &[Row]) -> Vec<Target> {
    let Some(chief) = System::chief(systems) else { return Vec::new() };
    let of = |(factor, least): (usize, Option<f64>)| {
        let case = name(factor);
        let gain = least.zip(find(rows, chief, &case, GAIN)).map(|(least, row)| {
            let what = format!("{case}: the kernel's p99 of wake-ups over {chief}'s");
            Target::at_least(&what, row, least)
        });
        let kept = find(rows, chief, &case, KEPT).map(|row| {
            let what = format!("{case}: {chief}'s requests per second over the kernel's");
            Target::at_least(&what, row, LEAST_KEPT)
        });
        [gain, kept].into_iter().flatten()
    };
    FACTORS.into_iter().flat_map(of).collect()
}
