//! What a user can choose.

use std::path::PathBuf;

use super::builds::Builds;
use super::compiler::{Compiler, PACKAGES};
use super::part::Part;
use super::programs::Programs;
use crate::suite::Part as _;
use heddle_core::Ns;

/// Options of `heddle bench probes`.
#[derive(Debug)]
pub struct ProbesOptions {
    /// The parts to run, in the order of [`crate::suite::Part::ALL`].
    pub parts: Vec<Part>,
    /// The compilers; preempt uses the first.
    pub compilers: Vec<Compiler>,
    /// Compilers that were found and do not work with probes, and why.
    pub refused: Vec<(String, String)>,
    /// Rounds of each part.
    pub rounds: u32,
    /// Runs of a kernel in a process; the least time counts.
    pub runs: u32,
    /// Programs that are built with probes and without.
    pub programs: Option<Programs>,
    /// Runs of a program; the least time counts.
    pub program_runs: u32,
    /// Runs of a kernel in a process that records its looks at the clock.
    pub recorded_runs: u32,
    /// Attempts per figure before an invalid run is accepted as such.
    pub tries: u32,
    /// Duration of each run of preempt.
    pub duration: Ns,
    /// The CPU of the programs.
    pub cpu: u32,
    /// This program, which has `heddle cc` and `heddle run`.
    pub program: PathBuf,
    /// Whether all parts are short, to try out and not to quote.
    pub quick: bool,
    pub(super) builds: Builds,
}

impl ProbesOptions {
    /// All parts at their usual length; with `quick`, one short round of each, not to quote.
    #[must_use]
    pub fn new(compilers: Vec<Compiler>, cpu: u32, program: PathBuf, quick: bool) -> ProbesOptions {
        ProbesOptions {
            parts: Part::ALL.to_vec(),
            compilers,
            refused: Vec::new(),
            rounds: if quick { 1 } else { 9 },
            runs: if quick { 1 } else { 5 },
            programs: None,
            program_runs: if quick { 1 } else { 3 },
            recorded_runs: if quick { 1 } else { 40 },
            tries: if quick { 1 } else { 3 },
            duration: Ns::from_ms(if quick { 50 } else { 500 }),
            cpu,
            program,
            quick,
            builds: Builds::default(),
        }
    }

    /// Why no program can be compiled with probes.
    pub(super) fn without_compiler(&self) -> Option<String> {
        if !self.compilers.is_empty() {
            return None;
        }
        let why = match self.refused.as_slice() {
            [] => "no clang was found".to_owned(),
            refused => {
                let reasons = refused.iter().map(|(name, why)| format!("{name}: {why}"));
                reasons.collect::<Vec<_>>().join("; ")
            }
        };
        Some(format!("{why} (apt-get install {PACKAGES}; heddle cc --check lists what works)"))
    }
}

/// Returns `all` for one round; each round starts with another.
pub(super) fn each_first<T>(all: &[T], round: u32) -> impl Iterator<Item = &T> {
    let (before, from) = all.split_at(round as usize % all.len().max(1));
    from.iter().chain(before)
}
