//! Debian's MariaDB with a thread for each connection: point selects beside a few connections that aggregate.

mod clients;
mod connection;
mod data;
mod packets;
mod server;
mod testbed;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::options::PosixOptions;
use super::part::Part;
use super::rounds::{compared, find};
use super::system::System;
use crate::suite::{PartResult, Target};
use heddle_load::Op;
use heddle_metrics::{Better, Collector, Progress, Row, Run, human};
use testbed::{Sample, Testbed};

pub(super) use server::SERVER;

/// The case of point selects.
pub(super) const SELECT: &str = "mariadb-select";
/// The case of aggregates.
pub(super) const AGGREGATE: &str = "mariadb-aggregate";
/// The kernel's p99.9 of selects divided by a system's of the same round.
pub(super) const GAIN: &str = "p99.9_gain";
/// The same with the kernel's aggregating threads at nice 19.
pub(super) const OVER_NICE: &str = "p99.9_gain_over_nice";
/// Aggregates per second.
pub(super) const RATE: &str = "aggregates_per_s";
/// A system's aggregates per second divided by the kernel's of the same round.
pub(super) const KEPT: &str = "aggregates_kept";

/// How many times lower the p99.9 of selects must be than the kernel's.
const LEAST_GAIN: f64 = 3.0;
/// The same with the kernel's aggregating threads at nice 19.
const LEAST_GAIN_OVER_NICE: f64 = 2.0;
/// The least share of the kernel's aggregates.
const LEAST_KEPT: f64 = 0.95;

/// Systems of one round with what was measured, or why nothing was.
type Turn = Vec<(System, Result<Sample, String>)>;

/// Measures in interleaved rounds.
///
/// # Errors
/// A server that does not start as kernel threads.
pub(super) fn run(
    options: &PosixOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    progress.step("mariadb: its table, and how much it can do");
    let testbed = Testbed::prepare(options, stop)?;
    progress.line(&testbed.in_words());
    let systems = options.compared(Part::Mariadb);
    let mut collect = Collector::new();
    'all: for round in 0..options.rounds {
        let mut turn = Turn::new();
        for system in PosixOptions::turns(&systems, round) {
            progress.step(&format!("mariadb, round {}: {system}", round + 1));
            let measured = match testbed.measure(system, round, stop) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                measured => measured.map_err(|error| error.to_string()),
            };
            progress.line(&line(system, &measured));
            turn.push((system.clone(), measured));
        }
        add(&mut collect, testbed.rate(), &turn);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let mut rows: Vec<Row> = collect.into_rows().into_iter().map(directed).collect();
    let targets = targets(&options.systems, &rows);
    let capacity = [Run::ok(testbed.capacity)];
    rows.push(Row::from_runs("calibration", SELECT, "saturation", "1/s", &capacity));
    Ok(PartResult { targets, rows, ..PartResult::default() })
}

/// The condition that a reader must know.
pub(super) fn condition(options: &PosixOptions) -> String {
    let (selects, aggregates) = testbed::CONNECTIONS;
    format!(
        "mariadb: Debian's, with its defaults, a private instance in memory, over a Unix socket; per CPU of the server \
         {selects} connections of point selects, open loop, Poisson, latency from the intended send time, at {:.0} % of \
         half of what the kernel's server answers in a closed loop without aggregates, and {aggregates} connections that \
         aggregate, some {} each on an idle server, one after the other; kernel-nice: the threads of these connections \
         at nice 19; {}; {}",
        options.load * 100.0,
        data::AGGREGATE,
        options.duration,
        testbed::cpus(options).map_or_else(|error| error, |cpus| cpus.in_words())
    )
}

fn add(collect: &mut Collector, rate: f64, turn: &Turn) {
    let mut at = collect.at_load(rate);
    for (system, sample) in turn {
        let name = system.to_string();
        if let Ok(sample) = sample {
            let why = sample.invalid();
            let latency = &sample.run.tally.op(Op::Get).latency;
            at.latency(&name, SELECT, latency, why.as_deref());
            let value = |value| why.clone().map_or(Run::ok(value), |why| Run::invalid(value, why));
            at.add(&name, SELECT, "achieved", "1/s", value(sample.run.throughput(Op::Get)));
            let late = sample.run.tally.counts().late_share() * 100.0;
            at.add(&name, SELECT, "late_percent", "%", value(late));
        } else {
            at.add(&name, SELECT, "p99.9", "ns", tail(sample));
        }
        at.add(&name, AGGREGATE, RATE, "1/s", aggregates(sample));
        let beside = |peer: System| {
            let compares = *system != System::Kernel && *system != peer;
            turn.iter().find(|(other, _)| compares && *other == peer).map(|(_, peer)| peer)
        };
        for (metric, peer) in [(GAIN, System::Kernel), (OVER_NICE, System::KernelNice)] {
            let Some(peer) = beside(peer) else { continue };
            let gain = compared(|ours, peer| peer / ours.max(1.0), tail(sample), tail(peer));
            at.add(&name, SELECT, metric, "x", gain);
        }
        if let Some(kernel) = beside(System::Kernel) {
            let kept =
                compared(|ours, kernel| ours / kernel, aggregates(sample), aggregates(kernel));
            at.add(&name, AGGREGATE, KEPT, "x", kept);
        }
    }
}

/// The p99.9 of selects.
fn tail(sample: &Result<Sample, String>) -> Run {
    match sample {
        Ok(sample) => {
            let value = sample.run.tally.op(Op::Get).latency.percentile(99.9).0 as f64;
            Run { value, invalid: sample.invalid() }
        }
        Err(why) => Run::invalid(f64::NAN, why.clone()),
    }
}

fn aggregates(sample: &Result<Sample, String>) -> Run {
    match sample.as_ref().map(|sample| (sample.aggregates(), sample.invalid())) {
        Ok((Ok(value), invalid)) => Run { value, invalid },
        Ok((Err(why), _)) => Run::invalid(f64::NAN, why),
        Err(why) => Run::invalid(f64::NAN, why.clone()),
    }
}

fn directed(row: Row) -> Row {
    let more = row.metric.contains("_gain") || [RATE, KEPT].contains(&row.metric.as_str());
    if more { row.with_better(Better::Higher) } else { row }
}

pub(super) fn targets(systems: &[System], rows: &[Row]) -> Vec<Target> {
    let Some(chief) = System::chief(systems) else { return Vec::new() };
    let target = |(case, metric, what, least): (&str, &str, &str, f64)| {
        Some(Target::at_least(what, find(rows, chief, case, metric)?, least))
    };
    let of = |text: &str| format!("mariadb: {text}");
    let gain = of(&format!("the kernel's p99.9 of selects over {chief}'s"));
    let nice = of(&format!("the kernel's p99.9 of selects, aggregates at nice 19, over {chief}'s"));
    let kept = of(&format!("{chief}'s aggregates per second over the kernel's"));
    [
        (SELECT, GAIN, gain.as_str(), LEAST_GAIN),
        (SELECT, OVER_NICE, nice.as_str(), LEAST_GAIN_OVER_NICE),
        (AGGREGATE, KEPT, kept.as_str(), LEAST_KEPT),
    ]
    .into_iter()
    .filter_map(target)
    .collect()
}

/// A line of the live table.
fn line(system: &System, sample: &Result<Sample, String>) -> String {
    let sample = match sample {
        Ok(sample) => sample,
        Err(why) => return format!("  {system}: {why}"),
    };
    let latency = &sample.run.tally.op(Op::Get).latency;
    let time = |percent| human(latency.percentile(percent).0 as f64, "ns");
    let rate = sample.aggregates().map_or_else(str::to_owned, |rate| format!("{rate:.1}/s"));
    let mark = sample.invalid().map_or(String::new(), |why| format!("  ! {why}"));
    format!(
        "  {:<34} select p50 {:>8}  p99 {:>8}  p99.9 {:>8}  aggregates {rate:>7}{mark}",
        system.to_string(),
        time(50.0),
        time(99.0),
        time(99.9),
    )
}
