//! Programs that run to their end, on all systems in interleaved rounds.

use std::io;
use std::sync::atomic::AtomicBool;

use super::options::PosixOptions;
use super::part::Part;
use super::process::{self, Measured};
use super::programs::Program;
use super::system::System;
use heddle_metrics::{Better, Collector, Progress, Row, Run};

/// Most CPU time of other processes during a run by the wall clock, as a share of one CPU.
pub(crate) const MOST_OTHERS: f64 = 0.02;

/// One program with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The name in results.
    pub(super) name: String,
    pub(super) program: Program,
    pub(super) args: Vec<String>,
    /// The CPUs of the program.
    pub(super) cpus: Vec<u32>,
}

/// What is read and compared in every case of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// The names of figures, with their units.
    pub(super) metrics: &'static [(&'static str, &'static str)],
    pub(super) comparisons: &'static [Comparison],
    /// Whether other processes falsify the figures.
    pub(super) by_wall_clock: bool,
}

/// A figure of a system beside the kernel's of the same round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    /// The name of the row, with its unit.
    pub(super) metric: (&'static str, &'static str),
    /// The compared figure.
    pub(super) of: &'static str,
    /// Of the system's and the kernel's.
    pub(super) how: fn(f64, f64) -> f64,
    pub(super) better: Better,
}

impl Comparison {
    /// The kernel's `of` over a system's: how many times lower that is. `name` is the row's.
    pub(super) const fn gain(name: &'static str, of: &'static str) -> Comparison {
        let how = |ours: f64, kernel: f64| kernel / ours.max(1.0);
        Comparison { metric: (name, "x"), of, how, better: Better::Higher }
    }

    /// A system's rate `of` over the kernel's. `name` is the row's.
    pub(super) const fn kept(name: &'static str, of: &'static str) -> Comparison {
        let how = |ours, kernel| ours / kernel;
        Comparison { metric: (name, "x"), of, how, better: Better::Higher }
    }
}

/// The figures of one case in one round.
type Turn = Vec<(System, Result<Measured, String>)>;

/// Measures in interleaved rounds; returns the rows so far if `stop` is set.
///
/// # Errors
/// A program that does not compile.
pub(super) fn run(
    options: &PosixOptions,
    part: Part,
    cases: &[Case],
    reading: Reading,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let systems = options.compared(part);
    let mut collect = Collector::new();
    'all: for round in 0..options.rounds {
        for case in cases {
            progress.step(&format!("{part}, round {}: {}", round + 1, case.name));
            let mut turn = Vec::new();
            for system in PosixOptions::turns(&systems, round) {
                let measured = match attempt(options, system, case, reading, stop) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                    measured => measured.map_err(|error| error.to_string()),
                };
                turn.push((system.clone(), measured));
            }
            add(&mut collect, &case.name, reading, &turn);
        }
    }
    let directed = |row: Row| match direction(reading, &row.metric) {
        Some(better) => row.with_better(better),
        None => row,
    };
    Ok(collect.into_rows().into_iter().map(directed).collect())
}

/// Repeats a run that was `disturbed`, until it has been made so often: other activity comes and goes.
///
/// # Errors
/// Those of `once`; a run that fails is not repeated.
pub(crate) fn attempts<S>(
    tries: u32,
    mut once: impl FnMut() -> io::Result<S>,
    disturbed: impl Fn(&S) -> Option<String>,
) -> io::Result<S> {
    let mut sample = once()?;
    for _ in 1..tries {
        if disturbed(&sample).is_none() {
            break;
        }
        sample = once()?;
    }
    Ok(sample)
}

fn attempt(
    options: &PosixOptions,
    system: &System,
    case: &Case,
    reading: Reading,
    stop: &AtomicBool,
) -> io::Result<Measured> {
    let once = || {
        let command = options.command(system, case.program, &case.args)?;
        process::measure(command, &case.cpus, None, stop)
    };
    attempts(options.tries, once, |measured| disturbed(reading, measured))
}

fn disturbed(reading: Reading, measured: &Measured) -> Option<String> {
    busy_others(measured.others).filter(|_| reading.by_wall_clock)
}

/// Why a run must not be quoted during which other processes used this share of a CPU.
pub(crate) fn busy_others(share: f64) -> Option<String> {
    (share > MOST_OTHERS).then(|| format!("others used {:.1} % of a CPU", share * 100.0))
}

/// A figure as a run: valid, or with the reason why not.
fn figure(reading: Reading, measured: &Result<Measured, String>, metric: &str) -> Run {
    let measured = match measured {
        Ok(measured) => measured,
        Err(why) => return Run::invalid(f64::NAN, why.clone()),
    };
    match (measured.values.get(metric), disturbed(reading, measured)) {
        (None, _) => Run::invalid(f64::NAN, format!("printed no {metric}")),
        (Some(&value), Some(why)) => Run::invalid(value, why),
        (Some(&value), None) => Run::ok(value),
    }
}

fn add(collect: &mut Collector, case: &str, reading: Reading, turn: &Turn) {
    let kernel = turn.iter().find(|(system, _)| *system == System::Kernel);
    for (system, measured) in turn {
        let name = system.to_string();
        for &(metric, unit) in reading.metrics {
            collect.add(&name, case, metric, unit, figure(reading, measured, metric));
        }
        let Some((_, kernel)) = kernel.filter(|_| *system != System::Kernel) else { continue };
        for comparison in reading.comparisons {
            let of = |measured| figure(reading, measured, comparison.of);
            let (metric, unit) = comparison.metric;
            collect.add(
                &name,
                case,
                metric,
                unit,
                compared(comparison.how, of(measured), of(kernel)),
            );
        }
    }
}

/// A comparison is as valid as both of its runs.
pub(crate) fn compared(how: fn(f64, f64) -> f64, ours: Run, kernel: Run) -> Run {
    Run { value: how(ours.value, kernel.value), invalid: ours.invalid.or(kernel.invalid) }
}

fn direction(reading: Reading, metric: &str) -> Option<Better> {
    let mut all = reading.comparisons.iter();
    all.find(|comparison| comparison.metric.0 == metric).map(|comparison| comparison.better)
}

/// The row of a system, case and metric.
pub(super) fn find<'a>(
    rows: &'a [Row],
    system: &System,
    case: &str,
    metric: &str,
) -> Option<&'a Row> {
    let name = system.to_string();
    let same = |row: &&Row| row.system == name && row.case == case && row.metric == metric;
    rows.iter().find(same)
}
