//! The bench: its options and its parts.

use super::ladder::{self, FEW};
use super::system::System;
use super::targets;
use crate::kv::Cpus;
use crate::suite::{Outcome, PartResult, Suite, parts};
use heddle_core::Ns;
use heddle_metrics::{Collector, Progress, Report, Results, Row};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

parts! {
    /// A quantity measured at each level.
    pub enum Part {
        /// A thousand new connections, each up to its first answer.
        Accept = "accept",
        /// Answers, with requests on a thousand of the connections in turn.
        Few = "few",
        /// Answers, with requests on all connections in turn.
        All = "all",
    }
}

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

impl Suite for ConnectionsOptions {
    type Part = Part;

    const NAME: &'static str = "bench connections";

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn steps(&self) -> u64 {
        (self.parts.len() * self.systems.len()) as u64 * u64::from(self.rounds)
    }

    fn prepare(&self) {
        // If it fails, the client shares a CPU with the server, for both systems alike.
        let _ = heddle_sys::thread::pin(&[self.cpus.load]);
    }

    fn measure(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        let mut collect = Collector::new();
        'all: for round in 0..self.rounds {
            for &system in &self.systems {
                progress.step(&format!("{part}, round {}: {system}", round + 1));
                match ladder::climb(self, part, system, stop) {
                    Ok(levels) => targets::add(&mut collect, part, system, &levels),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                    Err(error) => return Err(error),
                }
            }
        }
        let rows: Vec<Row> = collect.into_rows().into_iter().map(targets::directed).collect();
        let most = self.levels.last().copied().unwrap_or(0);
        Ok(PartResult {
            targets: targets::targets(part, most, &rows),
            tables: targets::tables(&rows),
            rows,
            ..PartResult::default()
        })
    }

    fn conditions(&self) -> Vec<String> {
        let mut said = vec![
            "Systems in turn within a round, each with a fresh server process of one worker; medians of rounds \
             with least and greatest; \
             rate_kept is of two levels of one run."
                .into(),
            "Closed loop over loopback with 64 requests of 8 bytes in flight, from one thread; every read of \
             the server has a time limit.".into(),
            self.cpus.in_words(),
        ];
        if self.quick {
            said.push("--quick: few connections, once and shortly, not to quote.".into());
        }
        said
    }

    fn report(&self, outcome: &Outcome<Part>, results: &Results) -> Report {
        let head = (
            "Connections",
            "A server with more and more live connections",
            "Targets above; tables below.",
        );
        outcome.report(head, |report| report, self.conditions(), results)
    }
}
