//! The fate of threads whose agent dies or is replaced, or whose affinities are toggled while it commits.

mod recover;
mod storm;
mod upgrade;

pub(super) use recover::recover;
pub(super) use storm::storm;
pub(super) use upgrade::upgrade;

use super::child::{LOAD, LoadReport, LoadSpec};
use super::launch::{Enclave, Launcher, limit, report_in};
use super::running::Running;
use heddle_agent::guardian::{EnclaveEntry, Kind};
use heddle_core::Ns;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Options of this part.
#[derive(Clone, Debug)]
pub struct FateOptions {
    /// The enclave's CPUs.
    pub cpus: Vec<u32>,
    /// Threads that want a CPU all the time.
    pub hogs: usize,
    /// Number of kills, and of loads with replacements.
    pub rounds: u32,
    /// Duration of the affinity storm.
    pub storm: Ns,
    /// Duration of the other loads.
    pub length: Ns,
}

/// The policy of all three parts: round robin, so that pauses are known.
const POLICY: &str = "round-robin:quantum=4ms";
/// Longer than an agent takes to start on an emulated machine.
const STARTING: Duration = Duration::from_secs(90);
/// A thread that has not run for this long when its load ends is lost.
const LOST: Ns = Ns::from_ms(500);
/// Warm-up of a load.
const WARMUP: Ns = Ns::from_ms(500);

impl FateOptions {
    fn spec(&self) -> LoadSpec {
        LoadSpec {
            hogs: self.hogs,
            warmup_ns: WARMUP.0,
            duration_ns: self.length.0,
            ..LoadSpec::default()
        }
    }
}

/// A load in an enclave with an agent.
struct Managed {
    running: Running,
    enclave: Enclave,
}

impl Managed {
    fn start(launcher: &Launcher, enclave: Enclave, spec: &LoadSpec) -> io::Result<Managed> {
        let command = launcher.under(&enclave, &launcher.child(LOAD, spec));
        Ok(Managed { running: Running::start(command)?, enclave })
    }

    /// Waits until the load runs under an agent.
    fn wait_for_agent(&self, stop: &AtomicBool) -> io::Result<EnclaveEntry> {
        let begin = Instant::now();
        while begin.elapsed() < STARTING {
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let listed = self.enclave.find();
            let has_agent =
                |it: &EnclaveEntry| it.record.agent.is_some() && it.record.pid.is_some();
            if let Some(listed) = listed.filter(has_agent) {
                return Ok(listed);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(io::Error::other("the load did not start under its agent"))
    }

    fn report(self, spec: &LoadSpec, stop: &AtomicBool) -> io::Result<LoadReport> {
        report_in(&self.running.finish(limit(spec), stop)?)
    }
}

fn enclave(options: &FateOptions, kind: Kind) -> Enclave {
    Enclave::new(kind, POLICY, &options.cpus)
}

fn name(kind: Kind) -> String {
    format!("agent-{kind}")
}

fn stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}
