//! Interleaved rounds of settings, and the rows that follow.

use super::measured::{Measured, Metric};
use super::testbed::{Setting, Testbed};
use super::usage::accounts_softirqs_apart;
use crate::posix::rounds::busy_others;
use heddle_metrics::{Collector, Progress, Row, Run, human};
use std::io;
use std::sync::atomic::Ordering;

/// Times that a run beside which others were busy is made at most.
const TRIES: u32 = 3;

/// A comparison under one load.
pub(super) struct Contest {
    /// The case in results.
    pub(super) case: String,
    /// The names of systems in results, and what they are.
    pub(super) settings: Vec<(String, Setting)>,
    pub(super) metrics: &'static [Metric],
    /// Metrics of the first system over those of the second in the same round.
    pub(super) ratios: Vec<(&'static str, &'static str, &'static [Metric])>,
}

/// Returns the name of a ratio's metric.
pub(super) fn ratio_name(metric: Metric, reference: &str) -> String {
    format!("{}_of_{}", metric.name().0, reference.replace(' ', "_"))
}

/// Measures a contest in interleaved rounds; returns the rows so far if the bench is stopped.
///
/// # Errors
/// An end failed.
pub(super) fn compare(
    testbed: &Testbed<'_>,
    contest: &Contest,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let apart = accounts_softirqs_apart();
    let mut collect = Collector::new();
    'all: for round in 0..testbed.options.rounds {
        let mut measured = Vec::new();
        for (name, setting) in in_turn(&contest.settings, round) {
            progress.step(&format!("{}, round {}: {name}", contest.case, round + 1));
            match measure(testbed, *setting, round) {
                _ if testbed.stop.load(Ordering::Relaxed) => break 'all,
                Ok(found) => measured.push((name, found)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                Err(error) => {
                    return Err(io::Error::other(format!("{}: {name}: {error}", contest.case)));
                }
            }
            let (name, found) = measured.last().expect("one was pushed");
            progress.line(&line(contest, name, found, apart));
        }
        add(&mut collect, contest, &measured, apart);
    }
    let better = |row: Row| {
        let metric = contest
            .metrics
            .iter()
            .find(|metric| row.metric.split("_of_").next() == Some(metric.name().0));
        metric.map_or(row.clone(), |metric| row.with_better(metric.better()))
    };
    Ok(collect.into_rows().into_iter().map(better).collect())
}

/// Another setting begins each round.
fn in_turn<T>(all: &[T], round: u32) -> impl Iterator<Item = &T> {
    let first = round as usize % all.len().max(1);
    all[first..].iter().chain(&all[..first])
}

/// Measures until others were quiet, or [`TRIES`] times.
fn measure(testbed: &Testbed<'_>, setting: Setting, round: u32) -> io::Result<Measured> {
    let mut measured = testbed.run(setting, round.into())?;
    for _ in 1..TRIES {
        if busy_others(measured.others).is_none() || testbed.options.quick {
            break;
        }
        let again = testbed.run(setting, round.into())?;
        if again.others < measured.others {
            measured = again;
        }
    }
    Ok(measured)
}

fn run(measured: &Measured, value: f64) -> Run {
    busy_others(measured.others).map_or(Run::ok(value), |why| Run::invalid(value, why))
}

fn add(collect: &mut Collector, contest: &Contest, measured: &[(&String, Measured)], apart: bool) {
    let mut measured: Vec<_> = measured.iter().collect();
    measured.sort_by_key(|(name, _)| contest.settings.iter().position(|(of, _)| of == *name));
    for (name, found) in &measured {
        for metric in contest.metrics {
            let (of, unit) = metric.name();
            collect.add(name, &contest.case, of, unit, run(found, metric.of(found, apart)));
        }
    }
    let find = |name: &str| measured.iter().find(|(of, _)| *of == name).map(|(_, found)| found);
    for (system, reference, metrics) in &contest.ratios {
        let Some((ours, theirs)) = find(system).zip(find(reference)) else { continue };
        for metric in *metrics {
            let ratio = metric.of(ours, apart) / metric.of(theirs, apart);
            let worse = if ours.others > theirs.others { ours } else { theirs };
            collect.add(
                system,
                &contest.case,
                &ratio_name(*metric, reference),
                "x",
                run(worse, ratio),
            );
        }
    }
}

/// A line of what happens.
fn line(contest: &Contest, name: &str, measured: &Measured, apart: bool) -> String {
    let figures = contest.metrics.iter().take(5).map(|metric| {
        let (of, unit) = metric.name();
        format!("{of} {}", human(metric.of(measured, apart), unit))
    });
    let figures: Vec<String> = figures.collect();
    let why = busy_others(measured.others).map_or(String::new(), |why| format!("  ! {why}"));
    format!("  {}: {name:24} {}{why}", contest.case, figures.join("  "))
}
