//! Worker threads of a packet-processing service, with strict priority over antagonists (ghOSt, section 4.3 and
//! Figure 7).
//!
//! A worker sleeps until a message comes, copies it, computes its checksum and sends it back. Clients send short
//! messages on one flow and long ones on five, each to a worker of its own. Results: round trips and the wakeups in
//! them, without antagonists (*quiet*) and with (*loaded*), and what the antagonists get.

mod flows;
mod rows;

use super::child::{ECHO, EchoSpec, echo};
use super::colocated::{Colocated, Share};
use super::generator::Generator;
use super::launch::Launcher;
use super::system::System;
use crate::suite::PartResult;
use flows::Flows;
use heddle_agent::guardian::Kind;
use heddle_core::Ns;
use heddle_load::{Arrivals, LoadRun, Mix, Op, Plan, drive};
use heddle_metrics::{Collector, Histogram, Progress, Run};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// One flow of short messages and five of long ones.
const FLOWS: usize = 6;
/// The paper's: one client in six sends short messages, all at the same rate.
const MIX: &str = "get=1,set=5";
/// Agents learn of all threads.
const WARMUP: Ns = Ns::from_ms(500);
/// Time limit, after which a message is lost.
const TIMEOUT: Ns = Ns::from_secs(2);

/// Options of this part.
#[derive(Clone, Debug)]
pub struct SnapOptions {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// The CPU of the clients and of agents.
    pub load_cpu: u32,
    /// The workers', and the antagonists'.
    pub worker_cpu: u32,
    /// Antagonists in the loaded mode.
    pub antagonists: usize,
    /// Messages per second, over all flows.
    pub rate: f64,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each measurement.
    pub duration: Ns,
}

/// Whether antagonists run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Quiet,
    Loaded,
}

impl Mode {
    const ALL: [Mode; 2] = [Mode::Quiet, Mode::Loaded];

    fn name(self) -> &'static str {
        match self {
            Mode::Quiet => "quiet",
            Mode::Loaded => "loaded",
        }
    }
}

impl SnapOptions {
    /// The default options.
    #[must_use]
    pub fn new(kind: Option<Kind>, load_cpu: u32, worker_cpu: u32, quick: bool) -> SnapOptions {
        let policies = ["priority:quantum=5ms,check=1ms"].map(String::from);
        SnapOptions {
            systems: System::beside_antagonists(kind, &policies),
            load_cpu,
            worker_cpu,
            antagonists: 3,
            rate: 1000.0,
            rounds: if quick { 1 } else { 5 },
            duration: Ns::from_ms(if quick { 500 } else { 3000 }),
        }
    }

    pub(super) fn steps(&self) -> u64 {
        u64::from(self.rounds) * (Mode::ALL.len() * self.systems.len()) as u64
    }
}

/// The result of one system in one mode.
struct Sample {
    run: LoadRun,
    /// From the sending of a short and of a long message until its worker read it.
    wakeups: [Histogram; flows::KINDS.len()],
    /// CPU time of the antagonists, in per cent of the CPU.
    antagonists: Option<f64>,
    /// Why it must not be quoted, in addition to the load's own verdict.
    doubt: Option<String>,
}

impl Sample {
    fn invalid(&self) -> Option<String> {
        self.doubt.clone().or_else(|| self.run.invalid())
    }

    /// The p99 of round trips of a kind of message, in ns.
    fn p99(&self, op: Op) -> f64 {
        self.run.tally.op(op).latency.p99().0 as f64
    }
}

/// Measures in interleaved rounds with the same arrivals. A system that cannot run gets an invalid row with the reason.
///
/// # Errors
/// The default scheduler's load failed.
pub(super) fn run(
    options: &SnapOptions,
    launcher: &Launcher,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let mut collect = Collector::new();
    for round in 0..options.rounds {
        for mode in Mode::ALL {
            let mut fifo = None;
            for system in &options.systems {
                if stop.load(Ordering::Relaxed) {
                    return Ok(rows::judge(options, collect));
                }
                progress.step(&format!("snap, round {}: {}, {system}", round + 1, mode.name()));
                match measure(options, launcher, (system, mode), round, stop) {
                    Ok(sample) => {
                        progress.line(&rows::line(system, &sample));
                        rows::add(&mut collect, system, mode, &sample, fifo.as_ref());
                        if system == &System::Fifo {
                            fifo = Some(sample);
                        }
                    }
                    Err(error) if stop.load(Ordering::Relaxed) => {
                        progress.line(&format!("  {system}: {error}"));
                    }
                    Err(error) if system == &System::Default => return Err(error),
                    Err(error) => {
                        progress.line(&format!("  {system}: {error}"));
                        let run = Run::invalid(f64::NAN, error.to_string());
                        let case = rows::case(mode, flows::KINDS[0].1);
                        collect.add(&system.to_string(), &case, "p99", "ns", run);
                    }
                }
            }
        }
    }
    Ok(rows::judge(options, collect))
}

fn measure(
    options: &SnapOptions,
    launcher: &Launcher,
    (system, mode): (&System, Mode),
    round: u32,
    stop: &AtomicBool,
) -> io::Result<Sample> {
    let program = launcher.child(ECHO, &EchoSpec { workers: FLOWS });
    let antagonists = if mode == Mode::Loaded { options.antagonists } else { 0 };
    let on = (system, options.worker_cpu);
    let (service, ports) =
        Colocated::start(launcher, on, antagonists, &program, stop, echo::ports)?;
    let mut used = Share::of(service.antagonists()?, WARMUP);
    let mut flows = Flows::connect(&ports, WARMUP)?;
    let mix: Mix = MIX.parse().map_err(io::Error::other)?;
    let arrivals = Arrivals::new(1 + u64::from(round), options.rate, mix, FLOWS - 1);
    let plan = Plan { warmup: WARMUP, end: WARMUP + options.duration, timeout: TIMEOUT };
    let _generator = Generator::on(options.load_cpu)?;
    let mut clock = flows.clock();
    let unknown = [None; Op::ALL.len()];
    let run = drive(plan, options.rate, arrivals, (&mut clock, &mut flows), unknown, |moment| {
        used.look(&moment);
        !stop.load(Ordering::Relaxed)
    })?;
    Ok(Sample {
        run,
        wakeups: flows.wakeups().clone(),
        antagonists: used.percent().filter(|_| mode == Mode::Loaded),
        doubt: service.doubt(),
    })
}
