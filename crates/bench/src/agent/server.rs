//! The key-value server as an unmodified multi-threaded program, next to antagonists that want every CPU
//! (ghOSt, Figure 6).
//!
//! GETs and a few long SCANs, each handled by a pool thread. Results: the tail of GETs (Figure 6b), and how much of the
//! remaining CPU time the antagonists get (6c), compared with settings by hand: nice values, SCHED_IDLE, real-time
//! priority for the server, and cgroup weights.

mod point;
mod rows;

use super::launch::Launcher;
use super::system::System;
use crate::kv::StoreKind;
use crate::suite::PartResult;
use heddle_agent::guardian::Kind;
use heddle_core::Ns;
use heddle_load::Mix;
use heddle_metrics::{Collector, Progress, Run};
use point::Bench;
use rows::Before;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Options of this part.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// The CPU of the load generator and of agents.
    pub load_cpu: u32,
    /// The server's, and the antagonists'.
    pub server_cpu: u32,
    /// Antagonists.
    pub antagonists: usize,
    /// The server's threads.
    pub threads: usize,
    /// The store.
    pub store: StoreKind,
    /// The mix of operations.
    pub mix: Mix,
    /// How long a SCAN lasts at least.
    pub scan_service: Ns,
    /// Loads, as shares of the saturation of the server alone under the default scheduler.
    pub loads: Vec<f64>,
    /// Keys of the dataset.
    pub keys: u64,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each point.
    pub duration: Ns,
}

impl ServerOptions {
    /// The default options.
    #[must_use]
    pub fn new(kind: Option<Kind>, load_cpu: u32, server_cpu: u32, quick: bool) -> ServerOptions {
        // Without a class for best-effort work, such as plain shinjuku, antagonists are the server's equals.
        let policies = ["shinjuku-shenango:quantum=500us,long=4ms,check=500us"].map(String::from);
        // Each agent operation over rt costs some ten microseconds: a SCAN must be long compared with that.
        let mix = "get=98,scan=2".parse().expect("a mix");
        ServerOptions {
            systems: System::beside_antagonists(kind, &policies),
            load_cpu,
            server_cpu,
            antagonists: 2,
            threads: 16,
            store: StoreKind::best(),
            mix,
            scan_service: if quick { Ns::from_us(500) } else { Ns::from_ms(5) },
            loads: if quick { vec![0.3] } else { vec![0.2, 0.4, 0.6] },
            keys: if quick { 50_000 } else { 500_000 },
            rounds: if quick { 1 } else { 3 },
            duration: Ns::from_ms(if quick { 500 } else { 4000 }),
        }
    }

    pub(super) fn steps(&self) -> u64 {
        1 + u64::from(self.rounds) * self.systems.len() as u64
    }
}

/// Measures in interleaved rounds with the same arrivals.
///
/// # Errors
/// The server does not start under the default scheduler.
pub(super) fn run(
    options: &ServerOptions,
    launcher: &Launcher,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    progress.step("rocksdb: how much the server can do");
    let bench = Bench::prepare(options, launcher, stop)?;
    progress.line(&bench.in_words());
    let mut collect = Collector::new();
    for round in 0..options.rounds {
        let mut before = Before::default();
        for system in &options.systems {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            progress.step(&format!("rocksdb, round {}: {system}", round + 1));
            match bench.measure(system, round, stop) {
                Ok(samples) => {
                    for sample in &samples {
                        progress.line(&sample.line(system));
                        rows::add(&mut collect, &options.mix, system, sample, &before);
                    }
                    match system {
                        System::Default => before.default = samples,
                        System::Nice => before.nice = samples,
                        _ => {}
                    }
                }
                Err(error) if system == &System::Default || stop.load(Ordering::Relaxed) => {
                    return Err(error);
                }
                Err(error) => {
                    progress.line(&format!("  {system}: {error}"));
                    let run = Run::invalid(f64::NAN, error.to_string());
                    collect.add(&system.to_string(), "get", "p99", "ns", run);
                }
            }
        }
    }
    let rows = rows::noted(options, collect.into_rows());
    let tables = rows::table(options, &rows).into_iter().collect();
    Ok(PartResult { tables, rows, ..PartResult::default() })
}
