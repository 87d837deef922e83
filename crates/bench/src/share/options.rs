//! What a user can choose.

use super::cgroup::Groups;
use super::part::Part;
use super::setup;
use super::system::System;
use crate::futures::work;
use crate::kv::{Cpus, StoreKind};
use crate::posix::installed::MEMCACHED;
use crate::posix::programs::{Program, Programs};
use crate::posix::{self, launch};
use crate::suite::Part as _;
use heddle_core::Ns;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Options of `heddle bench share`.
#[derive(Debug)]
pub struct ShareOptions {
    /// The parts to run, in the order of [`crate::suite::Part::ALL`].
    pub parts: Vec<Part>,
    /// The systems to compare, each in the parts that it [is in](System::is_in).
    pub systems: Vec<System>,
    /// Runs of each system in `switch`.
    pub switch_rounds: u32,
    /// Rounds of the other parts.
    pub rounds: u32,
    /// Switches of a run, at least.
    pub switches: u64,
    /// Duration of each load.
    pub duration: Ns,
    /// Loads, as shares of what the server can do alone.
    pub loads: Vec<f64>,
    /// The seed of the arrivals.
    pub seed: u64,
    /// Attempts per run before a disturbed one is accepted as such.
    pub tries: u32,
    /// The shared CPU is the first of the server's; the generator has its own.
    pub cpus: Cpus,
    /// This program, which has `heddle run` and `heddle share`, and measures with [`super::run_child`].
    pub program: PathBuf,
    /// Whether all parts are short, to try out and not to quote.
    pub quick: bool,
    pub(super) programs: Programs,
    /// Why systems cannot run, for each part, found at the first question.
    refusals: [OnceLock<Vec<(System, String)>>; Part::ALL.len()],
    speed: OnceLock<f64>,
}

/// The load at which targets are stated.
pub(super) const HALF: f64 = 0.5;

impl ShareOptions {
    /// All parts at their usual length; with `quick`, one short round of each.
    #[must_use]
    pub fn new(systems: &[System], cpus: Cpus, program: PathBuf, quick: bool) -> ShareOptions {
        ShareOptions {
            parts: Part::ALL.to_vec(),
            systems: systems.to_vec(),
            switch_rounds: if quick { 1 } else { 7 },
            rounds: if quick { 1 } else { 3 },
            switches: if quick { 20_000 } else { 200_000 },
            duration: Ns::from_ms(if quick { 200 } else { 3_000 }),
            loads: if quick { vec![HALF] } else { vec![0.1, 0.3, HALF, 0.7] },
            seed: 1,
            tries: if quick { 1 } else { 3 },
            cpus,
            program,
            quick,
            programs: Programs::default(),
            refusals: [const { OnceLock::new() }; Part::ALL.len()],
            speed: OnceLock::new(),
        }
    }

    /// The CPU that applications share.
    pub(super) fn cpu(&self) -> u32 {
        self.cpus.server[0]
    }

    /// Returns the systems that a part compares here, another first in each round.
    pub(super) fn turns(&self, part: Part, round: u32) -> Vec<System> {
        let refused =
            |system: &System| self.refusals(part).iter().any(|(refused, _)| refused == system);
        let mut here = self.wanted(part);
        here.retain(|system| !refused(system));
        let first = round as usize % here.len().max(1);
        here.rotate_left(first);
        here
    }

    fn wanted(&self, part: Part) -> Vec<System> {
        let wanted = |system: &System| system.is_in(part) && self.systems.contains(system);
        System::ALL.into_iter().filter(wanted).collect()
    }

    /// The loads of `part`.
    pub(super) fn loads(&self, part: Part) -> &[f64] {
        match part {
            Part::Switch | Part::Wake => &[],
            Part::Service | Part::Memcached | Part::RocksDb => &self.loads,
        }
    }

    /// Steps of work in a microsecond on the shared CPU, measured once.
    pub(super) fn speed(&self) -> f64 {
        *self.speed.get_or_init(|| work::calibrate(self.cpu()))
    }

    /// Returns why a part cannot run at all.
    pub(super) fn obstacle_of(&self, part: Part) -> Option<String> {
        if self.cpus.shared {
            return Some("it takes two CPUs: one to share, and one for all others".into());
        }
        let server = match part {
            Part::Switch => return None,
            Part::Service | Part::Wake => None,
            Part::Memcached => MEMCACHED.find().err(),
            Part::RocksDb => (StoreKind::best() != StoreKind::RocksDb).then(|| {
                "this program was built without RocksDB: build it with --features rocksdb".into()
            }),
        };
        let batch = || self.programs.path(Program::Batch).err().map(|error| error.to_string());
        server.or_else(batch)
    }

    /// Returns the systems of a part that cannot run here, and why.
    pub(super) fn refusals(&self, part: Part) -> &[(System, String)] {
        self.refusals[part as usize].get_or_init(|| {
            let realtime = setup::no_realtime();
            let groups = Groups::make().err().map(|error| error.to_string());
            let run = self.runs_programs(part).then(|| self.run_refuses()).flatten();
            let refusal = |system: System| {
                let why = match system {
                    System::Cgroup => groups.clone(),
                    _ if system.is_realtime() && realtime.is_some() => realtime.clone(),
                    System::Alone | System::Share | System::ShareOrdinary => run.clone(),
                    _ => None,
                };
                why.map(|why| (system, why))
            };
            self.wanted(part).into_iter().filter_map(refusal).collect()
        })
    }

    fn runs_programs(&self, part: Part) -> bool {
        part != Part::Switch && self.obstacle_of(part).is_none()
    }

    /// Returns why `heddle run` would refuse the batch program.
    fn run_refuses(&self) -> Option<String> {
        let batch = self.programs.path(Program::Batch).ok()?;
        let heddle = posix::System::Heddle(BATCH_POLICY.into());
        launch::refusal(&self.program, &heddle, &batch)
    }
}

/// The policy of the batch program.
pub(super) const BATCH_POLICY: &str = "work-stealing";
/// The policy of the latency-critical program.
pub(super) const CRITICAL_POLICY: &str = posix::POLICY;

#[cfg(test)]
mod tests {
    use super::*;

    fn options(systems: &[System]) -> ShareOptions {
        let cpus = Cpus { server: vec![0], load: 1, shared: false };
        ShareOptions::new(systems, cpus, "/bin/false".into(), false)
    }

    #[test]
    fn systems_take_turns_and_their_order_is_that_of_the_tables() {
        let options = options(&[System::Pipe, System::Futex, System::Kernel]);
        let first = |round| options.turns(Part::Switch, round)[0];
        assert_eq!([0, 1, 2].map(first), [System::Futex, System::Pipe, System::Futex]);
        assert!(options.turns(Part::Wake, 3).is_empty());
    }

    #[test]
    fn servers_are_measured_at_each_load() {
        let options = ShareOptions { loads: vec![0.2, 0.3], ..options(&System::ALL) };
        for part in [Part::Service, Part::Memcached, Part::RocksDb] {
            assert_eq!(options.loads(part), [0.2, 0.3]);
        }
        assert!(options.loads(Part::Switch).is_empty());
    }

    #[test]
    fn one_cpu_does_not_suffice() {
        let mut options = options(&System::ALL);
        options.cpus.shared = true;
        assert!(options.obstacle_of(Part::Switch).unwrap().contains("two CPUs"));
    }
}
