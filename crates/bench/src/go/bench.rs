//! All parts, in the order of their tables.

use super::options::{BadgerOptions, Carrier, CpuOptions};
use super::system::System;
use super::testbed::MOST_OTHERS;
use super::toolchain::Toolchain;
use super::{Part, badger, cpu, report, targets};
use crate::kv::Cpus;
use crate::suite::{Outcome, Part as _, PartResult, Suite};
use heddle_core::Ns;
use heddle_metrics::{Progress, Report, Results};
use std::io;
use std::sync::atomic::AtomicBool;

/// Options of `heddle bench go`.
#[derive(Debug)]
pub struct GoOptions {
    /// The parts to run, in the order of [`crate::suite::Part::ALL`].
    pub parts: Vec<Part>,
    /// The systems to compare.
    pub systems: Vec<System>,
    /// The server, over both carriers.
    pub badger: BadgerOptions,
    /// Small programs, for the scheduler's cost.
    pub cpu: CpuOptions,
    /// The toolchain that builds the programs.
    pub toolchain: Toolchain,
    /// Whether all parts are short, to try out and not to quote.
    pub quick: bool,
}

impl GoOptions {
    /// All parts at their usual length, some ten minutes with the usual systems; with `quick`, one short
    /// round of each, not to quote.
    #[must_use]
    pub fn new(systems: &[System], toolchain: Toolchain, quick: bool) -> GoOptions {
        GoOptions {
            parts: Part::ALL.to_vec(),
            systems: systems.to_vec(),
            badger: BadgerOptions::new(systems, quick),
            cpu: CpuOptions::new(systems, quick),
            toolchain,
            quick,
        }
    }

    /// Sets the rounds of each part.
    pub fn set_rounds(&mut self, rounds: u32) {
        self.badger.rounds = rounds;
        self.cpu.rounds = rounds;
    }

    /// Sets the CPUs of server and load.
    pub fn set_cpus(&mut self, cpus: Cpus) {
        self.badger.cpus = Some(cpus.clone());
        self.cpu.cpus = Some(cpus);
    }

    fn placed(&self) -> String {
        match &self.badger.cpus {
            Some(cpus) => format!(
                "{}; the Go runtime's monitor is a thread of the server and shares its CPU.",
                cpus.in_words()
            ),
            None => "Server and generator share the only CPU: what is measured includes their switching.".into(),
        }
    }
}

impl Suite for GoOptions {
    type Part = Part;

    const NAME: &'static str = "bench go";

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn steps(&self) -> u64 {
        let of = |part: &Part| match part {
            Part::BadgerUdp | Part::BadgerHttp => self.badger.steps(),
            Part::Cpu => self.cpu.steps(),
        };
        self.parts.iter().map(of).sum()
    }

    fn obstacle(&self, _: Part) -> Option<String> {
        self.toolchain.obstacle(&self.systems)
    }

    fn lacks(&self, part: Part) -> Option<String> {
        let alone = !self.systems.contains(&System::STOCK);
        alone.then(|| format!("without stock among the systems {} has no ratios", part.name()))
    }

    fn measure(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        let toolchain = &self.toolchain;
        let mut found = match part {
            Part::BadgerUdp => badger::run(&self.badger, Carrier::Udp, toolchain, stop, progress),
            Part::BadgerHttp => badger::run(&self.badger, Carrier::Http, toolchain, stop, progress),
            Part::Cpu => cpu::run(&self.cpu, toolchain, stop, progress),
        }?;
        found.tables = targets::tables(part, &found.rows);
        Ok(found)
    }

    /// Conditions that a reader must know before quoting.
    fn conditions(&self) -> Vec<String> {
        let badger = &self.badger;
        let mut said = vec![
            "GOMAXPROCS=1 for every program. Systems in turn within a round, another first each time; medians \
             of rounds with least and \
             greatest; ratios are of two runs of one round. All but stock are one binary, built by heddle go build."
                .into(),
            format!(
                "badger: {}, {} keys, a SCAN takes {} or a little more on the idle stock runtime; open loop, \
                 Poisson, latency from the \
                 intended send time; loads are shares of what stock can do in a closed loop; a run with more \
                 than 1.5 % of sends later than \
                 a millisecond, or in which others used more than {:.0} % of a CPU, is invalid and done again, \
                 {} times at most. HTTP/1.1 on \
                 connections that stay open, one request at a time on each.",
                badger.mix,
                badger.keys,
                badger.scan,
                MOST_OTHERS * 100.0,
                badger.tries - 1
            ),
            self.placed(),
            format!(
                "cpu: {} goroutines, the least CPU time of {} runs a process; median of {} rounds.",
                self.cpu.goroutines, self.cpu.runs, self.cpu.rounds
            ),
        ];
        if badger.duration < Ns::from_secs(1) {
            said.push(
                "Points of less than a second: a p99.9 of so few requests says little.".into(),
            );
        }
        if self.quick {
            said.push("--quick: each part once and shortly, not to quote.".into());
        }
        said
    }

    fn report(&self, outcome: &Outcome<Part>, results: &Results) -> Report {
        report::report(&self.systems, self.conditions(), outcome, results)
    }
}
