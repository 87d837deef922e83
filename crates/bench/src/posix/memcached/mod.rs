//! Debian's memcached, an event loop in each thread: nothing to gain, and nothing may be lost.

pub(crate) mod testbed;
pub(crate) mod text;

use std::io;
use std::sync::atomic::AtomicBool;

use super::options::PosixOptions;
use super::part::Part;
use super::rounds::{compared, find};
use super::system::System;
use super::turns::{self, Sample as _, Turn, beside, figure};
use crate::suite::{PartResult, Target};
use heddle_load::Op;
use heddle_metrics::{Better, Collector, Progress, Row, Run};
use testbed::{Sample, Testbed};

/// Threads of the server, and how many times the kernel's p99 a system's may be.
const THREADS: [(usize, f64); 2] = [(2, 1.1), (8, 1.0)];
/// The number of cases.
pub(super) const CASES: u64 = THREADS.len() as u64;
/// GETs per second in a closed loop.
pub(super) const RATE: &str = "gets_per_s";
/// The server's CPU time of one of them.
pub(super) const COST: &str = "cpu_ns_per_get";
/// A system's GETs per second divided by the kernel's of the same round.
pub(super) const KEPT: &str = "gets_kept";
/// A system's p99 of GETs in an open loop divided by the kernel's of the same round.
pub(super) const OF_KERNEL: &str = "p99_of_kernel";
/// The least share of the kernel's GETs.
const LEAST_KEPT: f64 = 0.95;

/// The case of a server with so many threads.
fn name(threads: usize) -> String {
    format!("memcached-t{threads}")
}

/// Measures in interleaved rounds, one number of threads after the other.
///
/// # Errors
/// A server that does not start as kernel threads.
pub(super) fn run(
    options: &PosixOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let mut rows = Vec::new();
    for (threads, _) in THREADS {
        let case = name(threads);
        progress.step(&format!("{case}: how much it can do"));
        let testbed = Testbed::prepare(options, threads, stop)?;
        progress.line(&testbed.in_words());
        let mut collect = Collector::new();
        let once = |system: &System, round| testbed.measure(system, round, stop);
        turns::run(options, (Part::Memcached, &case), progress, once, |turn| {
            add(&mut collect, &case, testbed.rate(), turn);
        });
        rows.extend(collect.into_rows().into_iter().map(directed));
        let capacity = [Run::ok(testbed.capacity)];
        rows.push(Row::from_runs("calibration", &case, "saturation", "1/s", &capacity));
    }
    Ok(PartResult { targets: targets(&options.systems, &rows), rows, ..PartResult::default() })
}

/// The condition that a reader must know.
pub(super) fn condition(options: &PosixOptions) -> String {
    format!(
        "memcached: Debian's, with 2 and with 8 threads, {} connections on loopback, values of {} bytes; GETs per \
         second in a closed loop for {}; then latencies in an open loop of {}, Poisson, from the intended send time, \
         at {:.0} % of the kernel's GETs per second; {}; {}",
        testbed::CONNECTIONS,
        testbed::VALUE,
        options.duration / 2,
        testbed::MIX,
        options.load * 100.0,
        options.duration,
        super::testbed::cpus(options)
            .map_or_else(|error| error.to_string(), |cpus| cpus.in_words())
    )
}

fn add(collect: &mut Collector, case: &str, rate: f64, turn: &Turn<Sample>) {
    let p99 = |sample: &Sample| sample.run.tally.op(Op::Get).latency.percentile(99.0).0 as f64;
    let operations = |sample: &Sample| sample.operations;
    for (system, sample) in turn {
        let name = system.to_string();
        collect.add(&name, case, RATE, "1/s", figure(sample, operations));
        collect.add(&name, case, COST, "ns", figure(sample, |sample| sample.cost));
        let mut at = collect.at_load(rate);
        match sample {
            Ok(measured) => {
                let latency = &measured.run.tally.op(Op::Get).latency;
                at.latency(&name, case, latency, measured.invalid().as_deref());
            }
            Err(_) => at.add(&name, case, "p99", "ns", figure(sample, p99)),
        }
        let Some(kernel) = beside(turn, system, &System::Kernel) else { continue };
        let of = |ours, kernel| compared(|ours, kernel| ours / kernel, ours, kernel);
        let tail = of(figure(sample, p99), figure(kernel, p99));
        collect.add(&name, case, OF_KERNEL, "x", tail);
        let kept = of(figure(sample, operations), figure(kernel, operations));
        collect.add(&name, case, KEPT, "x", kept);
    }
}

fn directed(row: Row) -> Row {
    match row.metric.as_str() {
        KEPT => row.with_better(Better::Higher),
        OF_KERNEL => row.with_better(Better::Lower),
        _ => row,
    }
}

pub(super) fn targets(systems: &[System], rows: &[Row]) -> Vec<Target> {
    let Some(chief) = System::chief(systems) else { return Vec::new() };
    let of = |(threads, most): (usize, f64)| {
        let case = name(threads);
        let kept = find(rows, chief, &case, KEPT).map(|row| {
            let what = format!("{case}: {chief}'s GETs per second over the kernel's");
            Target::at_least(&what, row, LEAST_KEPT)
        });
        let tail = find(rows, chief, &case, OF_KERNEL).map(|row| {
            let what = format!("{case}: {chief}'s p99 of GETs over the kernel's");
            Target::at_most(&what, row, most)
        });
        [kept, tail].into_iter().flatten()
    };
    THREADS.into_iter().flat_map(of).collect()
}
