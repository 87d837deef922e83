//! Options of the two kinds of parts.

use super::system::System;
use crate::kv::Cpus;
use heddle_core::Ns;
use heddle_load::Mix;

/// Options of the BadgerDB parts.
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

/// Options of the CPU-time part.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// Under what.
    pub systems: Vec<System>,
    /// Which programs; all where none is named.
    pub cases: Vec<String>,
    /// Goroutines among which the work is shared.
    pub goroutines: u32,
    /// Runs in each process, of which the least counts.
    pub runs: u32,
    /// Rounds.
    pub rounds: u32,
    /// Where the programs run.
    pub cpus: Option<Cpus>,
}

impl CpuOptions {
    /// The usual ones; `quick`: once and shortly, not to quote.
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
