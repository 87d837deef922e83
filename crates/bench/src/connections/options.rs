//! What a user can choose.

use super::part::Part;
use super::system::System;
use crate::kv::Cpus;
use heddle_core::Ns;
use std::path::PathBuf;

/// Connections opened to measure the accept rate, and used if not all have their turn.
pub(super) const FEW: usize = 1_000;

/// Options of `heddle bench connections`.
#[derive(Clone, Debug)]
pub struct ConnectionsOptions {
    /// The parts to run.
    pub parts: Vec<Part>,
    /// The systems that serve.
    pub systems: Vec<System>,
    /// Numbers of live connections, ascending.
    pub levels: Vec<usize>,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each level.
    pub duration: Ns,
    /// CPUs of the server and of this process.
    pub cpus: Cpus,
    /// This program, which can run as the server.
    pub program: PathBuf,
    /// Whether all parts are short, to try out and not to quote.
    pub quick: bool,
}

impl ConnectionsOptions {
    /// A thousand, ten thousand and a hundred thousand connections; `quick`: a few hundred, once.
    #[must_use]
    pub fn new(systems: &[System], cpus: Cpus, quick: bool) -> ConnectionsOptions {
        ConnectionsOptions {
            parts: vec![Part::Accept, Part::Few, Part::All],
            systems: systems.to_vec(),
            levels: if quick { vec![100, 500] } else { vec![1_000, 10_000, 100_000] },
            rounds: if quick { 1 } else { 3 },
            duration: Ns::from_ms(if quick { 100 } else { 2_000 }),
            cpus,
            // This running program, even if its file is replaced.
            program: "/proc/self/exe".into(),
            quick,
        }
    }

    /// Most connections live at the same time.
    #[must_use]
    pub fn most(&self) -> usize {
        self.levels.iter().max().map_or(0, |most| most + FEW)
    }
}
