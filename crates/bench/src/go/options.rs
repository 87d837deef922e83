//! Options of the two kinds of parts.

use super::system::System;
use crate::kv::Cpus;
use heddle_core::Ns;
use heddle_load::Mix;

/// Options of the BadgerDB parts.
#[derive(Clone, Debug)]
pub struct BadgerOptions {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// The mix of operations.
    pub mix: Mix,
    /// Shares of the stock runtime's saturation.
    pub loads: Vec<f64>,
    /// Least duration of a SCAN.
    pub scan: Ns,
    /// Keys of the dataset.
    pub keys: u32,
    /// Rounds.
    pub rounds: u32,
    /// Attempts per system and round before an invalid run is accepted as such.
    pub tries: u32,
    /// Duration of each point.
    pub duration: Ns,
    /// Seed of the arrivals, which differ between rounds.
    pub seed: u64,
    /// CPUs of server and load; `None` if they share the only CPU. The runtime's monitor is a thread of the
    /// server, so a pinned server shares its CPU with it.
    pub cpus: Option<Cpus>,
}

/// The transport of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Datagrams: one goroutine per request.
    Udp,
    /// HTTP/1.1 on persistent connections: one goroutine per connection.
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
    /// The default options; with `quick`, one short round, not to quote.
    ///
    /// # Panics
    /// Never: the mix is valid.
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

    /// Whether the generator has a CPU for itself.
    pub(super) fn alone(&self) -> bool {
        self.cpus.as_ref().is_some_and(|cpus| !cpus.shared)
    }

    pub(super) fn steps(&self) -> u64 {
        1 + u64::from(self.rounds) * self.systems.len() as u64
    }
}

/// Options of the CPU-time part.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// The programs; empty: all.
    pub cases: Vec<String>,
    /// Goroutines that share the work.
    pub goroutines: u32,
    /// Runs per process, of which the fastest counts.
    pub runs: u32,
    /// Rounds.
    pub rounds: u32,
    /// The CPUs of the programs.
    pub cpus: Option<Cpus>,
}

impl CpuOptions {
    /// The default options; with `quick`, one short round, not to quote.
    #[must_use]
    pub fn new(systems: &[System], quick: bool) -> CpuOptions {
        CpuOptions {
            systems: systems.to_vec(),
            cases: Vec::new(),
            goroutines: 4,
            runs: if quick { 1 } else { 6 },
            rounds: if quick { 1 } else { 5 },
            cpus: None,
        }
    }

    pub(super) fn steps(&self) -> u64 {
        1 + u64::from(self.rounds)
    }
}
