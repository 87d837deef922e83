//! Mix, loads, threads and policies.

use super::{Part, System};
use heddle_agent::guardian::Kind;
use heddle_core::Ns;
use heddle_load::{Mix, Op};
use std::path::PathBuf;

/// Options of the bench.
#[derive(Clone, Debug)]
pub struct CrossOptions {
    /// The parts.
    pub parts: Vec<Part>,
    /// The systems, in the order of each round.
    pub systems: Vec<System>,
    /// Loads, as shares of the capacity that follows from the service times.
    pub loads: Vec<f64>,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each point.
    pub duration: Ns,
    /// The agent's policy.
    pub policy: String,
    /// The server's threads.
    pub executors: usize,
    /// Of these, how many get no SCANs.
    pub spared: usize,
    /// The CPU of the load and the agent.
    pub load_cpu: u32,
    /// The server's.
    pub server_cpu: u32,
    /// The file of this program, which is also the server and the guardian.
    pub program: PathBuf,
    /// What carries out the agent's decisions; or why nothing can.
    pub backend: Result<Kind, String>,
    /// Why there can be no steering, if there cannot.
    pub no_steering: Option<String>,
    /// Whether it is a check that everything works.
    pub quick: bool,
}

/// CPU time of a GET and of a SCAN: RocksDB's in Syrup, section 5.2.
const GET: Ns = Ns::from_us(10);
const SCAN: Ns = Ns::from_us(700);
/// The load of the target.
pub(super) const TARGET_LOAD: f64 = 0.8;

impl CrossOptions {
    /// Five rounds of all systems at three loads, some ten minutes; with `quick`, one short round at one load.
    #[must_use]
    pub fn new(program: PathBuf, wanted: Option<Kind>, quick: bool) -> CrossOptions {
        let all = heddle_sys::thread::affinity().unwrap_or_default();
        CrossOptions {
            parts: vec![Part::Half],
            systems: System::ALL.to_vec(),
            loads: if quick { vec![TARGET_LOAD] } else { vec![0.4, 0.6, TARGET_LOAD] },
            rounds: if quick { 1 } else { 5 },
            duration: Ns::from_ms(if quick { 500 } else { 4000 }),
            policy: "priority:check=1ms,quantum=5ms".into(),
            executors: 6,
            spared: 2,
            load_cpu: all.first().copied().unwrap_or(0),
            server_cpu: all.last().copied().unwrap_or(0),
            program,
            backend: crate::agent::backend_here(wanted),
            no_steering: crate::steer::privilege(),
            quick,
        }
    }

    /// The mix: Syrup's for Figure 8.
    pub(super) fn mix() -> Mix {
        // The text is a constant, and a test reads it.
        "get=50,scan=50".parse().unwrap_or_else(|error| unreachable!("{error}"))
    }

    /// CPU time of a request.
    pub(super) fn service(op: Op) -> Ns {
        if op == Op::Scan { SCAN } else { GET }
    }

    /// Requests per second that a single CPU could serve if nothing but services took time.
    pub(super) fn capacity() -> f64 {
        let mix = CrossOptions::mix();
        let mean: f64 = mix.ops().map(|op| mix.share(op) * Self::service(op).as_secs_f64()).sum();
        1.0 / mean
    }

    /// Why a system cannot be measured here, if it cannot.
    pub(super) fn obstacle(&self, system: System) -> Option<String> {
        let no_agent = || self.backend.as_ref().err().map(|why| format!("no agent: {why}"));
        let no_steering = || self.no_steering.clone();
        match system {
            System::Kernel | System::Nice => None,
            System::Fifo => no_steering().map(|_| "SCHED_FIFO takes root".to_owned()),
            System::Threads => no_agent().or_else(no_steering),
            System::Both => no_steering().or_else(no_agent),
            System::ScanAvoid | System::Sita | System::Steer | System::SitaFifo => no_steering(),
        }
    }
}

/// The case in results.
pub(super) fn case(load: f64) -> String {
    format!("mix-50-50-load-{:.0}", load * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capacity_is_that_of_the_mean_service() {
        assert!((CrossOptions::capacity() - 1e6 / 355.0).abs() < 0.1);
        assert_eq!(case(TARGET_LOAD), "mix-50-50-load-80");
    }

    #[test]
    fn what_needs_privileges_says_so() {
        let mut options = CrossOptions::new(PathBuf::new(), None, true);
        options.no_steering = Some("no BPF".into());
        options.backend = Err("no agent".into());
        let without = |system| options.obstacle(system).is_none();
        let can: Vec<_> = System::ALL.into_iter().filter(|&system| without(system)).collect();
        assert_eq!(can, [System::Kernel, System::Nice]);
    }
}
