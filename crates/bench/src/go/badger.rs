//! BadgerDB under GETs and a few long SCANs (Aspen 4.1.3, Figure 7).

use super::options::{BadgerOptions, Carrier};
use super::testbed::{Sample, Testbed};
use super::toolchain::Toolchain;
use super::{calibrated, rows, targets};
use crate::suite::PartResult;
use heddle_metrics::{Collector, Progress, Row};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Measures in interleaved rounds.
///
/// # Errors
/// A program that cannot be built, or a server that does not start or repeatedly stops answering.
pub(super) fn run(
    options: &BadgerOptions,
    carrier: Carrier,
    toolchain: &Toolchain,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let case = carrier.case();
    progress.step(&format!("{case}: builds, the dataset, how much the server can do"));
    let testbed = Testbed::prepare(options, carrier, toolchain, stop)?;
    progress.line(&calibrated::in_words(&testbed.calibrated));
    let mut collect = Collector::new();
    for round in 0..options.rounds {
        let samples = measure_round(&testbed, round, stop, progress)?;
        samples.iter().for_each(|sample| rows::add(&mut collect, case, sample, &samples));
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let mut rows: Vec<Row> = collect.into_rows().into_iter().map(rows::directed).collect();
    let targets = targets::tails(case, &options.systems, &rows);
    rows.extend(calibrated::rows(carrier, &testbed.calibrated));
    Ok(PartResult { targets, rows, ..PartResult::default() })
}

/// Measures every system at every load; returns the results so far if `stop` is set.
fn measure_round(
    testbed: &Testbed<'_>,
    round: u32,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Sample>> {
    let systems = &testbed.options.systems;
    let mut samples = Vec::new();
    for turn in 0..systems.len() {
        // Each round starts with another (I2): the order must not matter.
        let system = systems[(turn + round as usize) % systems.len()];
        progress.step(&format!("{}, round {}: {system}", testbed.carrier.case(), round + 1));
        match testbed.measure(system, round, stop) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
            _ if stop.load(Ordering::Relaxed) => break,
            measured => samples.extend(measured?),
        }
        let new = samples.iter().filter(|sample: &&Sample| sample.system == system);
        new.for_each(|sample| progress.line(&sample.line()));
    }
    Ok(samples)
}
