//! A program whose first thread computes, on one CPU with a thread that wakes up each millisecond.

use std::io;
use std::sync::atomic::AtomicBool;

use super::options::PosixOptions;
use super::part::Part;
use super::programs::Program;
use super::rounds::{self, Case, Comparison, Reading};
use super::schbench::{GAIN, WAKEUP};
use crate::suite::PartResult;
use heddle_metrics::Progress;

/// The first thread's rate.
pub(super) const RATE: &str = "steps_per_s";
/// A system's rate divided by the kernel's of the same round.
pub(super) const KEPT: &str = "steps_kept";

const READING: Reading = Reading {
    metrics: &[("wakeup_p50_ns", "ns"), (WAKEUP, "ns"), ("wakeup_p999_ns", "ns"), (RATE, "1/s")],
    comparisons: &[Comparison::gain(GAIN, WAKEUP), Comparison::kept(KEPT, RATE)],
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
        name: "first".into(),
        program: Program::First,
        args: vec![(options.duration.0 / 1_000_000).max(2).to_string()],
        cpus: options.cpus.last().copied().into_iter().collect(),
    };
    let rows = rounds::run(options, Part::First, &[case], READING, stop, progress)?;
    Ok(PartResult { rows, ..PartResult::default() })
}
