//! A server with a thread for each connection under short requests and a few long ones.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::options::PosixOptions;
use super::part::Part;
use super::rounds::{compared, find};
use super::system::System;
use super::testbed::{Sample, Testbed};
use crate::suite::{PartResult, Target};
use heddle_load::Op;
use heddle_metrics::{Better, Collector, Progress, Row, Run, human};

/// The case of short requests.
pub(super) const SHORT: &str = "server-get";
/// The case of long requests.
pub(super) const LONG: &str = "server-scan";
/// The kernel's p99.9 of short requests divided by a system's of the same round.
pub(super) const GAIN: &str = "p99.9_gain";
/// The same with the kernel's long class at nice 19.
pub(super) const OVER_NICE: &str = "p99.9_gain_over_nice";
/// How many times lower the p99.9 of short requests must be than the kernel's.
const LEAST_GAIN: f64 = 8.0;

/// Systems of one round with what was measured, or why nothing was.
type Turn = Vec<(System, Result<Sample, String>)>;

/// Measures in interleaved rounds.
///
/// # Errors
/// A server that does not compile, or does not start as kernel threads.
pub(super) fn run(
    options: &PosixOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    progress.step("server: its work, and how much it can do");
    let testbed = Testbed::prepare(options, stop)?;
    progress.line(&testbed.in_words());
    let systems = options.compared(Part::Server);
    let mut collect = Collector::new();
    'all: for round in 0..options.rounds {
        let mut turn = Turn::new();
        for system in PosixOptions::turns(&systems, round) {
            progress.step(&format!("server, round {}: {system}", round + 1));
            match testbed.measure(system, round, stop) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                _ if stop.load(Ordering::Relaxed) => break 'all,
                measured => turn.push((system.clone(), measured.map_err(|e| e.to_string()))),
            }
            turn.last()
                .into_iter()
                .for_each(|(system, sample)| progress.line(&line(system, sample)));
        }
        add(&mut collect, testbed.rate(), &turn);
    }
    let mut rows: Vec<Row> = collect.into_rows().into_iter().map(directed).collect();
    let target = target(&options.systems, &rows);
    let saturation = [Run::ok(testbed.saturation)];
    rows.push(Row::from_runs("calibration", SHORT, "saturation", "1/s", &saturation));
    Ok(PartResult { targets: target.into_iter().collect(), rows, ..PartResult::default() })
}

fn add(collect: &mut Collector, rate: f64, turn: &Turn) {
    let mut at = collect.at_load(rate);
    for (system, sample) in turn {
        let name = system.to_string();
        match sample {
            Ok(sample) => {
                let why = sample.invalid();
                for (case, op) in [(SHORT, Op::Get), (LONG, Op::Scan)] {
                    let latency = &sample.run.tally.op(op).latency;
                    at.latency(&name, case, latency, why.as_deref());
                }
                let value =
                    |value| why.clone().map_or(Run::ok(value), |why| Run::invalid(value, why));
                at.add(&name, SHORT, "achieved", "1/s", value(sample.run.throughput_of_all()));
                let late = sample.run.tally.counts().late_share() * 100.0;
                at.add(&name, SHORT, "late_percent", "%", value(late));
            }
            Err(why) => at.add(&name, SHORT, "p99.9", "ns", Run::invalid(f64::NAN, why.clone())),
        }
        for (metric, peer) in [(GAIN, System::Kernel), (OVER_NICE, System::KernelNice)] {
            let compares = *system != System::Kernel && *system != peer;
            let peer = turn.iter().find(|(other, _)| *other == peer).filter(|_| compares);
            let Some((_, peer)) = peer else { continue };
            let gain = compared(|ours, peer| peer / ours.max(1.0), tail(sample), tail(peer));
            at.add(&name, SHORT, metric, "x", gain);
        }
    }
}

/// The p99.9 of short requests.
fn tail(sample: &Result<Sample, String>) -> Run {
    match sample {
        Ok(sample) => {
            let value = sample.run.tally.op(Op::Get).latency.percentile(99.9).0 as f64;
            Run { value, invalid: sample.invalid() }
        }
        Err(why) => Run::invalid(f64::NAN, why.clone()),
    }
}

fn directed(row: Row) -> Row {
    if row.metric.contains("_gain") { row.with_better(Better::Higher) } else { row }
}

pub(super) fn target(systems: &[System], rows: &[Row]) -> Option<Target> {
    let chief = System::chief(systems)?;
    let what = format!("server: the kernel's p99.9 of short requests over {chief}'s");
    Some(Target::at_least(&what, find(rows, chief, SHORT, GAIN)?, LEAST_GAIN))
}

/// A line of the live table.
fn line(system: &System, sample: &Result<Sample, String>) -> String {
    let sample = match sample {
        Ok(sample) => sample,
        Err(why) => return format!("  {system}: {why}"),
    };
    let time =
        |op, percent| human(sample.run.tally.op(op).latency.percentile(percent).0 as f64, "ns");
    let mark = sample.invalid().map_or(String::new(), |why| format!("  ! {why}"));
    format!(
        "  {:<34} short p50 {:>8}  p99 {:>8}  p99.9 {:>8}  long p50 {:>8}{mark}",
        system.to_string(),
        time(Op::Get, 50.0),
        time(Op::Get, 99.0),
        time(Op::Get, 99.9),
        time(Op::Scan, 50.0),
    )
}
