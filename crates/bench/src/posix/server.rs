//! A server with a thread for each connection under short requests and a few long ones.

use std::io;
use std::sync::atomic::AtomicBool;

use super::options::PosixOptions;
use super::part::Part;
use super::programs::Program;
use super::rounds::{compared, find};
use super::system::System;
use super::testbed::{Sample, Served, Testbed};
use super::turns::{self, Sample as _, Turn, beside, figure};
use crate::suite::{PartResult, Target};
use heddle_load::Op;
use heddle_metrics::{Better, Collector, Progress, Row, Run};

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

/// The case of the short requests of a server.
pub(super) fn short(server: &str) -> String {
    format!("{server}-get")
}

/// The case of its long requests.
fn long(server: &str) -> String {
    format!("{server}-scan")
}

/// Measures the server with a thread for each connection.
///
/// # Errors
/// A server that does not compile, or does not start as kernel threads.
pub(super) fn run(
    options: &PosixOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let program = options.programs.path(Program::Server)?;
    let (part, name) = (Part::Server, "server".to_owned());
    let served = Served { part, name, program, args: Vec::new() };
    let rows = measure(options, served, stop, progress)?;
    let targets = target(&options.systems, &rows).into_iter().collect();
    Ok(PartResult { targets, rows, ..PartResult::default() })
}

/// Measures a server in interleaved rounds.
///
/// # Errors
/// It does not start as kernel threads.
pub(super) fn measure(
    options: &PosixOptions,
    served: Served,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let (part, name) = (served.part, served.name.clone());
    progress.step(&format!("{name}: its work, and how much it can do"));
    let testbed = Testbed::prepare(options, served, stop)?;
    progress.line(&testbed.in_words());
    let mut collect = Collector::new();
    let once = |system: &System, round| testbed.measure(system, round, stop);
    turns::run(options, (part, &name), progress, once, |turn| {
        add(&mut collect, &name, testbed.rate(), turn);
    });
    let mut rows: Vec<Row> = collect.into_rows().into_iter().map(directed).collect();
    let saturation = [Run::ok(testbed.saturation)];
    rows.push(Row::from_runs("calibration", &short(&name), "saturation", "1/s", &saturation));
    Ok(rows)
}

fn add(collect: &mut Collector, server: &str, rate: f64, turn: &Turn<Sample>) {
    let (short, long) = (short(server), long(server));
    let mut at = collect.at_load(rate);
    for (system, sample) in turn {
        let name = system.to_string();
        match sample {
            Ok(measured) => {
                let why = measured.invalid();
                for (case, op) in [(&short, Op::Get), (&long, Op::Scan)] {
                    let latency = &measured.run.tally.op(op).latency;
                    at.latency(&name, case, latency, why.as_deref());
                }
                let achieved = figure(sample, |sample| sample.run.throughput_of_all());
                at.add(&name, &short, "achieved", "1/s", achieved);
                let late = |sample: &Sample| sample.run.tally.counts().late_share() * 100.0;
                at.add(&name, &short, "late_percent", "%", figure(sample, late));
            }
            Err(_) => at.add(&name, &short, "p99.9", "ns", figure(sample, tail)),
        }
        for (metric, peer) in [(GAIN, System::Kernel), (OVER_NICE, System::KernelNice)] {
            let Some(peer) = beside(turn, system, &peer) else { continue };
            let (ours, peer) = (figure(sample, tail), figure(peer, tail));
            let gain = compared(|ours, peer| peer / ours.max(1.0), ours, peer);
            at.add(&name, &short, metric, "x", gain);
        }
    }
}

/// The p99.9 of short requests.
fn tail(sample: &Sample) -> f64 {
    sample.run.tally.op(Op::Get).latency.percentile(99.9).0 as f64
}

fn directed(row: Row) -> Row {
    if row.metric.contains("_gain") { row.with_better(Better::Higher) } else { row }
}

pub(super) fn target(systems: &[System], rows: &[Row]) -> Option<Target> {
    let chief = System::chief(systems)?;
    let what = format!("server: the kernel's p99.9 of short requests over {chief}'s");
    Some(Target::at_least(&what, find(rows, chief, SHORT, GAIN)?, LEAST_GAIN))
}
