//! Debian's MariaDB with a thread for each connection: point selects beside a few connections that aggregate.

mod clients;
mod connection;
mod data;
mod packets;
mod server;
mod testbed;

use std::io;
use std::sync::atomic::AtomicBool;

use super::options::PosixOptions;
use super::part::Part;
use super::rounds::{compared, find};
use super::system::System;
use super::turns::{self, Measured, Sample as _, Turn, beside, figure};
use crate::suite::{PartResult, Target};
use heddle_load::Op;
use heddle_metrics::{Better, Collector, Progress, Row, Run};
use testbed::{Sample, Testbed};

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
    let mut collect = Collector::new();
    let once = |system: &System, round| testbed.measure(system, round, stop);
    let named = (Part::Mariadb, "mariadb");
    turns::run(options, named, progress, once, |turn| {
        add(&mut collect, testbed.rate(), turn);
    });
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
        "mariadb: Debian's, with its defaults, a private instance in memory, over a Unix socket; per CPU of the \
         server {selects} connections of point selects, open loop, Poisson, latency from the intended send time, at \
         {:.0} % of half of what the kernel's server answers in a closed loop without aggregates, and {aggregates} \
         connections that aggregate, some {} each on an idle server, one after the other; kernel-nice: the threads \
         of these connections at nice 19; {}; {}",
        options.load * 100.0,
        data::AGGREGATE,
        options.duration,
        testbed::cpus(options).map_or_else(|error| error, |cpus| cpus.in_words())
    )
}

fn add(collect: &mut Collector, rate: f64, turn: &Turn<Sample>) {
    let mut at = collect.at_load(rate);
    for (system, sample) in turn {
        let name = system.to_string();
        match sample {
            Ok(measured) => {
                let latency = &measured.run.tally.op(Op::Get).latency;
                at.latency(&name, SELECT, latency, measured.invalid().as_deref());
                let achieved = figure(sample, |sample| sample.run.throughput(Op::Get));
                at.add(&name, SELECT, "achieved", "1/s", achieved);
                let late = |sample: &Sample| sample.run.tally.counts().late_share() * 100.0;
                at.add(&name, SELECT, "late_percent", "%", figure(sample, late));
            }
            Err(_) => at.add(&name, SELECT, "p99.9", "ns", figure(sample, tail)),
        }
        at.add(&name, AGGREGATE, RATE, "1/s", aggregates(sample));
        for (metric, peer) in [(GAIN, System::Kernel), (OVER_NICE, System::KernelNice)] {
            let Some(peer) = beside(turn, system, &peer) else { continue };
            let (ours, peer) = (figure(sample, tail), figure(peer, tail));
            let gain = compared(|ours, peer| peer / ours.max(1.0), ours, peer);
            at.add(&name, SELECT, metric, "x", gain);
        }
        if let Some(kernel) = beside(turn, system, &System::Kernel) {
            let (ours, kernel) = (aggregates(sample), aggregates(kernel));
            at.add(
                &name,
                AGGREGATE,
                KEPT,
                "x",
                compared(|ours, kernel| ours / kernel, ours, kernel),
            );
        }
    }
}

/// The p99.9 of selects.
fn tail(sample: &Sample) -> f64 {
    sample.run.tally.op(Op::Get).latency.percentile(99.9).0 as f64
}

/// Aggregates per second.
fn aggregates(sample: &Measured<Sample>) -> Run {
    let too_few = || Some("fewer than two aggregates ended".to_owned());
    let run = figure(sample, |sample| sample.aggregates.unwrap_or(f64::NAN));
    Run { invalid: run.invalid.or_else(|| too_few().filter(|_| run.value.is_nan())), ..run }
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
