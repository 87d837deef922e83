//! Single operations on one CPU, in CPU time of the whole process.

use std::io;
use std::sync::atomic::AtomicBool;

use super::options::PosixOptions;
use super::part::Part;
use super::programs::Program;
use super::rounds::{self, Case, Comparison, Reading, find};
use super::system::System;
use crate::suite::{PartResult, Target};
use heddle_metrics::{Better, Progress, Row};

/// The figure that the program prints.
pub(super) const COST: &str = "cpu_ns_per_op";
/// By how much a system's is above the kernel's of the same round.
const OVER: &str = "over_kernel_ns";
/// A system's divided by the kernel's of the same round.
const OF_KERNEL: &str = "of_kernel";

const READING: Reading = Reading {
    metrics: &[(COST, "ns")],
    comparisons: &[
        Comparison {
            metric: (OVER, "ns"),
            of: COST,
            how: |ours, kernel| ours - kernel,
            better: Better::Lower,
        },
        Comparison {
            metric: (OF_KERNEL, "x"),
            of: COST,
            how: |ours, kernel| ours / kernel,
            better: Better::Lower,
        },
    ],
    by_wall_clock: false,
};

/// What an operation may cost.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    /// So many nanoseconds.
    Ns(f64),
    /// So many nanoseconds more than the kernel's.
    Over(f64),
    /// The same, or this share of the kernel's if that is more.
    OverOrShare(f64, f64),
    /// This share of the kernel's.
    Share(f64),
}

/// The operations with their bounds (research on POSIX threads, section 10). Where the bound is zero, half a nanosecond
/// is the noise of the loop.
pub(super) const OPS: [(&str, Bound); 12] = [
    ("create_join", Bound::Ns(450.0)),
    ("yield", Bound::Ns(40.0)),
    ("mutex", Bound::Ns(20.0)),
    ("cond", Bound::Ns(140.0)),
    ("sem", Bound::Ns(140.0)),
    ("futex", Bound::Ns(200.0)),
    ("read_write", Bound::OverOrShare(25.0, 0.03)),
    ("recv_blocks", Bound::Share(1.0)),
    ("clock_gettime", Bound::Over(2.0)),
    ("malloc_free", Bound::Over(4.0)),
    ("getspecific", Bound::Over(0.5)),
    ("child", Bound::Over(1e6)),
];

/// The number of operations.
pub(super) const CASES: u64 = OPS.len() as u64;

/// Measures in interleaved rounds.
///
/// # Errors
/// The program does not compile.
pub(super) fn run(
    options: &PosixOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let rows = rounds::run(options, Part::Micro, &cases(options), READING, stop, progress)?;
    Ok(PartResult { targets: targets(&options.systems, &rows), rows, ..PartResult::default() })
}

/// The last CPU is the one that a kernel's own work uses least.
fn cases(options: &PosixOptions) -> Vec<Case> {
    let cpus: Vec<u32> = options.cpus.last().copied().into_iter().collect();
    let ms = (options.budget.0 / 1_000_000).to_string();
    let case = |(op, _): (&str, Bound)| Case {
        name: op.into(),
        program: Program::Micro,
        args: vec![op.into(), ms.clone()],
        cpus: cpus.clone(),
    };
    OPS.into_iter().map(case).collect()
}

pub(super) fn targets(systems: &[System], rows: &[Row]) -> Vec<Target> {
    let Some(chief) = System::chief(systems) else { return Vec::new() };
    OPS.iter().filter_map(|&(op, bound)| target(rows, chief, op, bound)).collect()
}

fn target(rows: &[Row], chief: &System, op: &str, bound: Bound) -> Option<Target> {
    let ours = |metric| find(rows, chief, op, metric);
    let kernel = || find(rows, &System::Kernel, op, COST);
    let at_most = |row: &Row, what: &str, most| {
        Some(Target::at_most(&format!("{op}: {chief}'s {what}"), row, most))
    };
    match bound {
        Bound::Ns(most) => at_most(ours(COST)?, "CPU time", most),
        Bound::Over(most) => at_most(ours(OVER)?, "CPU time above the kernel's", most),
        Bound::OverOrShare(most, share) => {
            let most = most.max(kernel()?.value * share);
            at_most(ours(OVER)?, "CPU time above the kernel's", most)
        }
        Bound::Share(most) => at_most(ours(OF_KERNEL)?, "CPU time over the kernel's", most),
    }
}
