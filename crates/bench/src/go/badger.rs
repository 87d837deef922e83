//! BadgerDB under GETs and a few long SCANs (Aspen 4.1.3, Figure 7).

use super::system::System;
use super::testbed::{Sample, Testbed};
use super::toolchain::Toolchain;
use super::{calibrated, rows, targets};
use crate::kv::Cpus;
use crate::suite::PartResult;
use heddle_core::Ns;
use heddle_load::Mix;
use heddle_metrics::{Collector, Progress, Row};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is measured.
#[derive(Clone, Debug)]
pub struct BadgerOptions {
    /// Under what.
    pub systems: Vec<System>,
    /// Which operations.
    pub mix: Mix,
    /// Shares of the stock runtime's saturation.
    pub loads: Vec<f64>,
    /// How long a SCAN takes at least.
    pub scan: Ns,
    /// Keys of the dataset.
    pub keys: u32,
    /// Rounds.
    pub rounds: u32,
    /// How often a system is measured in a round before an invalid run stays as it is.
    pub tries: u32,
    /// How long each point is measured.
    pub duration: Ns,
    /// Fixes the arrivals; each round has others.
    pub seed: u64,
    /// Who runs where; `None`: server and load share the only CPU. The runtime's monitor is a thread of the server, so that a confined
    /// server shares its CPU with it.
    pub cpus: Option<Cpus>,
}

/// In what requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Datagrams: a goroutine a request.
    Udp,
    /// HTTP/1.1 on connections that stay open: a goroutine a connection.
    Http,
}

impl Carrier {
    /// The case in results.
    #[must_use]
    pub fn case(self) -> &'static str {
        match self {
            Carrier::Udp => "badger-udp",
            Carrier::Http => "badger-http",
        }
    }
}

impl BadgerOptions {
    /// The usual ones; `quick`: once and shortly, not to quote.
    ///
    /// # Panics
    /// Never: the mix is one.
    #[must_use]
    pub fn new(systems: &[System], quick: bool) -> BadgerOptions {
        BadgerOptions {
            systems: systems.to_vec(),
            mix: "get=99,scan=1".parse().expect("a mix"),
            loads: if quick { vec![0.2] } else { vec![0.15, 0.25] },
            scan: Ns::from_us(if quick { 200 } else { 800 }),
            keys: if quick { 20_000 } else { 200_000 },
            rounds: if quick { 1 } else { 7 },
            tries: if quick { 1 } else { 4 },
            duration: Ns::from_ms(if quick { 300 } else { 3_000 }),
            seed: 1,
            cpus: None,
        }
    }

    /// Whether the generator may keep a CPU busy.
    pub(super) fn alone(&self) -> bool {
        self.cpus.as_ref().is_some_and(|cpus| !cpus.shared)
    }

    pub(super) fn steps(&self) -> u64 {
        1 + u64::from(self.rounds) * self.systems.len() as u64
    }
}

/// Measures in interleaved rounds.
///
/// # Errors
/// A program that cannot be built, a server that does not start or falls silent twice.
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
        let samples = one_round(&testbed, round, stop, progress)?;
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

/// Every system at every load; what was measured until then where somebody stops it.
fn one_round(
    testbed: &Testbed<'_>,
    round: u32,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Sample>> {
    let systems = &testbed.options.systems;
    let mut samples = Vec::new();
    for turn in 0..systems.len() {
        // Another begins each time (I2): what follows whom must not decide.
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
