//! Interleaved rounds of settings, and the rows that follow.

use super::measured::{Measured, Metric};
use super::system::System;
use super::testbed::{Setting, Testbed};
use super::usage::accounts_softirqs_apart;
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
                Ok(found) => measured.push((name.as_str(), setting.server.0, found)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                Err(error) => {
                    return Err(io::Error::other(format!("{}: {name}: {error}", contest.case)));
                }
            }
            let found = measured.last().expect("one was pushed");
            progress.line(&line(contest, found, apart));
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
        if measured.invalid(setting.server.0).is_none() || testbed.options.quick {
            break;
        }
        let again = testbed.run(setting, round.into())?;
        if again.others < measured.others {
            measured = again;
        }
    }
    Ok(measured)
}

/// A run, and the server's system.
type SearchResult<'a> = (&'a str, System, Measured);

fn add(collect: &mut Collector, contest: &Contest, found: &[SearchResult<'_>], apart: bool) {
    let in_order = contest.settings.iter().flat_map(|(name, _)| find(found, name));
    for (name, system, measured) in in_order {
        for metric in contest.metrics {
            let (of, unit) = metric.name();
            let value = run(metric.of(measured, apart), measured.invalid(*system));
            collect.add(name, &contest.case, of, unit, value);
        }
    }
    for (system, reference, metrics) in &contest.ratios {
        let Some((ours, theirs)) = find(found, system).zip(find(found, reference)) else {
            continue;
        };
        let invalid = ours.2.invalid(ours.1).or(theirs.2.invalid(theirs.1));
        for metric in *metrics {
            let ratio = metric.of(&ours.2, apart) / metric.of(&theirs.2, apart);
            let name = ratio_name(*metric, reference);
            collect.add(system, &contest.case, &name, "x", run(ratio, invalid.clone()));
        }
    }
}

fn find<'a, 'b>(found: &'a [SearchResult<'b>], name: &str) -> Option<&'a SearchResult<'b>> {
    found.iter().find(|(of, ..)| *of == name)
}

fn run(value: f64, invalid: Option<String>) -> Run {
    invalid.map_or(Run::ok(value), |why| Run::invalid(value, why))
}

/// A line of what happens.
fn line(contest: &Contest, (name, system, measured): &SearchResult<'_>, apart: bool) -> String {
    let figures = contest.metrics.iter().take(5).map(|metric| {
        let (of, unit) = metric.name();
        format!("{of} {}", human(metric.of(measured, apart), unit))
    });
    let figures: Vec<String> = figures.collect();
    let why = measured.invalid(*system).map_or(String::new(), |why| format!("  ! {why}"));
    format!("  {}: {name:8} {}{why}", contest.case, figures.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_setting_begins_each_round() {
        let turns = |round| in_turn(&["a", "b", "c"], round).copied().collect::<String>();
        assert_eq!([turns(0), turns(1), turns(5)], ["abc", "bca", "cab"]);
    }

    #[test]
    fn ratios_are_of_one_round_and_invalid_with_either_run() {
        let contest = super::super::contests::tcp(1);
        let of = |name, system, p50_ns, others| {
            (
                name,
                system,
                Measured { answers: 1, time_ns: 1, p50_ns, others, ..Measured::default() },
            )
        };
        let mut collect = Collector::new();
        let quiet = [of("xdp", System::Xdp, 3, 0.0), of("kernel", System::Kernel, 4, 0.0)];
        let busy = [of("kernel", System::Kernel, 4, 0.5), of("xdp", System::Xdp, 8, 0.0)];
        add(&mut collect, &contest, &quiet, false);
        add(&mut collect, &contest, &busy, false);
        let rows = collect.into_rows();
        let ratio = rows.iter().find(|row| row.metric == "p50_of_kernel").unwrap();
        assert_eq!((ratio.value, ratio.runs, &*ratio.invalid_runs), (0.75, 1, &[2.0][..]));
        assert!(rows.iter().all(|row| row.metric != "p50_of_plain"));
    }
}
