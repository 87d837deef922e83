//! What a user can choose.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::part::Part;
use super::programs::{Program, Programs};
use super::system::System;
use super::{installed, launch};
use crate::suite::Part as _;
use heddle_core::Ns;

/// Options of `heddle bench posix`.
#[derive(Debug)]
pub struct PosixOptions {
    /// The parts to run, in the order of [`crate::suite::Part::ALL`].
    pub parts: Vec<Part>,
    /// The systems to compare.
    pub systems: Vec<System>,
    /// Further systems of the parts that run servers of the distribution.
    pub of_servers: Vec<System>,
    /// Rounds of each part.
    pub rounds: u32,
    /// Attempts per figure before an invalid run is accepted as such.
    pub tries: u32,
    /// CPU time of each operation of micro.
    pub budget: Ns,
    /// Duration of each point of the other parts.
    pub duration: Ns,
    /// Multiplications of matrices in a request of schbench.
    pub operations: u32,
    /// The load of the server, as a share of the kernel's capacity.
    pub load: f64,
    /// The length of a long request to the server.
    pub scan: Ns,
    /// Seed of the arrivals.
    pub seed: u64,
    /// The CPUs that may be used.
    pub cpus: Vec<u32>,
    /// This program, which has `heddle run`.
    pub program: PathBuf,
    /// Whether all parts are short, to try out and not to quote.
    pub quick: bool,
    pub(super) programs: Programs,
    /// Why Heddle's systems cannot run, for each part, found at the first question.
    pub(super) refusals: [OnceLock<Vec<(System, String)>>; Part::ALL.len()],
}

impl PosixOptions {
    /// All parts at their usual length, some ten minutes; with `quick`, one short round of each, not to quote.
    #[must_use]
    pub fn new(systems: &[System], cpus: &[u32], program: PathBuf, quick: bool) -> PosixOptions {
        PosixOptions {
            parts: Part::ALL.to_vec(),
            systems: systems.to_vec(),
            of_servers: Vec::new(),
            rounds: if quick { 1 } else { 7 },
            tries: if quick { 1 } else { 3 },
            budget: Ns::from_ms(if quick { 2 } else { 200 }),
            duration: Ns::from_ms(if quick { 200 } else { 3_000 }),
            operations: if quick { 1 } else { 5 },
            load: 0.5,
            scan: Ns::from_ms(4),
            seed: 1,
            cpus: cpus.to_vec(),
            program,
            quick,
            programs: Programs::default(),
            refusals: [const { OnceLock::new() }; Part::ALL.len()],
        }
    }

    /// Returns the systems that a part compares here.
    pub(super) fn compared(&self, part: Part) -> Vec<System> {
        let refused =
            |system: &System| self.refusals(part).iter().any(|(refused, _)| refused == system);
        self.wanted(part).into_iter().filter(|system| !refused(system)).collect()
    }

    /// Not all parts have two classes of threads.
    pub(super) fn wanted(&self, part: Part) -> Vec<System> {
        let more: &[System] = if part == Part::Mariadb { &self.of_servers } else { &[] };
        let classes = matches!(part, Part::First | Part::Server | Part::Mariadb);
        let wanted = self.systems.iter().chain(more);
        wanted.filter(|system| classes || **system != System::KernelNice).cloned().collect()
    }

    /// Returns Heddle's systems that `heddle run` refuses for the program of a part, and its reasons.
    pub(super) fn refusals(&self, part: Part) -> &[(System, String)] {
        self.refusals[part as usize].get_or_init(|| {
            let Ok(program) = self.program_of(part) else { return Vec::new() };
            let refusal = |system: System| {
                let why = launch::refusal(&self.program, &system, &program)?;
                Some((system, why))
            };
            self.wanted(part).into_iter().filter_map(refusal).collect()
        })
    }

    /// Returns the program of a part, or one that is compiled and linked as it is.
    ///
    /// # Errors
    /// It cannot be had here; the message says what to install.
    pub(super) fn program_of(&self, part: Part) -> Result<PathBuf, String> {
        match part {
            Part::Mariadb => installed::MARIADB.find(),
            Part::Memcached => installed::MEMCACHED.find(),
            Part::Tokio => installed::tokio_server(&self.program),
            Part::Micro | Part::Schbench | Part::Compute | Part::First | Part::Server => {
                self.programs.path(Program::Micro).map_err(|error| error.to_string())
            }
        }
    }

    /// Returns the systems of a part for one round; each round starts with another.
    pub(super) fn turns(systems: &[System], round: u32) -> impl Iterator<Item = &System> {
        let (before, from) = systems.split_at(round as usize % systems.len().max(1));
        from.iter().chain(before)
    }

    /// The command of `program` under `system`, which tells it to lower the priority of its long class.
    pub(super) fn command(
        &self,
        system: &System,
        program: Program,
        args: &[String],
    ) -> io::Result<std::process::Command> {
        let path = self.programs.path(program)?;
        let nice = (*system == System::KernelNice).then(|| "--nice".to_owned());
        let args: Vec<String> = args.iter().cloned().chain(nice).collect();
        Ok(launch::command(&self.program, system, &path, &args))
    }
}
