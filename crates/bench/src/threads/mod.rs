//! `heddle bench threads`: the cost of basic thread operations, in Heddle and in what it would replace.
//!
//! ```text
//! for each round, operation, system:        (interleaved, so that a noisy minute hits all alike)
//!     a fresh process, pinned to one CPU     (no system disturbs another, one worker each)
//!         warm up, estimate, run ~200 ms     -> CPU ns per operation on standard output
//! median of the rounds                       -> one row, metric `cpu_ns_per_op`
//! ```
//!
//! CPU time of the whole process counts, so that a helper thread or a garbage collector is part of the cost,
//! and waiting for the CPU is not. Systems that are Rust crates run in [`child`]; the others are peers in C,
//! C++ and Go, compiled if the tools are present. A missing one gets a row that says so, and [`install()`]
//! installs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use heddle_core::Ns;
use heddle_metrics::{Collector, Row, Run};

pub mod child;
pub mod dispatch;
mod install;
mod op;
mod peer;
pub mod preemption;
mod process;
mod system;
mod verdict;

pub use install::{Missing, install, missing_peers, offer};
pub use op::Op;
pub use system::System;
pub use verdict::{PAPER, verdict};

/// The metric of every row.
pub const METRIC: &str = "cpu_ns_per_op";

/// Options of the bench.
#[derive(Clone, Debug)]
pub struct Options {
    /// The systems, in the order of the table.
    pub systems: Vec<System>,
    /// Processes per figure.
    pub rounds: u32,
    /// CPU time of each process.
    pub budget: Ns,
    /// Workers, each on its own CPU; more than one only for systems that support it ([`System::scales`]).
    pub workers: usize,
    /// A program that implements `bench threads --child SYSTEM OP MILLISECONDS --workers N` with [`child::measure`].
    pub program: PathBuf,
}

impl Options {
    /// How often [`run`] reports a step.
    pub fn steps(&self) -> u64 {
        let alone = 2 * usize::from(self.has_heddle_alone());
        1 + (self.systems.len() * Op::ALL.len() + alone) as u64 * u64::from(self.rounds)
    }

    /// The costs of preemption and dispatch are measured with one worker only.
    fn has_heddle_alone(&self) -> bool {
        self.systems.contains(&System::Heddle) && self.workers == 1
    }
}

/// Measures every operation of every system and returns a row for each. `step` is called with the name of
/// every step before it starts; if it returns `false`, the run ends with the rows so far.
///
/// # Errors
/// Only if no folder for the compiled peers can be made; a system that cannot be measured gets a row with the reason.
pub fn run(options: &Options, mut step: impl FnMut(&str) -> bool) -> std::io::Result<Vec<Row>> {
    let folder = tempfile::Builder::new().prefix("heddle-peers-").tempdir()?;
    let mut runners = Vec::new();
    let mut collect = Collector::new();
    if step("compiling peers") {
        runners = options
            .systems
            .iter()
            .map(|&system| Runner::new(system, options, folder.path()))
            .collect();
    }
    for _ in 0..options.rounds {
        if !round(options, &runners, &mut step, &mut collect) {
            break;
        }
    }
    Ok(rows(collect, &runners))
}

/// All systems before the next operation, all operations before the next round. Returns whether to go on.
fn round(
    options: &Options,
    runners: &[Runner],
    step: &mut impl FnMut(&str) -> bool,
    collect: &mut Collector,
) -> bool {
    for op in Op::ALL {
        for runner in runners {
            if !step(&format!("{} {op}", runner.system)) {
                return false;
            }
            runner.add(op, options, collect);
        }
    }
    if options.has_heddle_alone() && !runners.is_empty() {
        if !step("heddle preemption") {
            return false;
        }
        // Differences between runs need longer ones than a rate does.
        preemption::measure(&options.program, options.budget * 5, collect);
        if !step("heddle dispatch") {
            return false;
        }
        dispatch::measure(&options.program, options.budget * 5, collect);
    }
    true
}

/// How a system is started.
struct Runner {
    system: System,
    start: Result<Start, String>,
}

enum Start {
    /// This program again.
    Child(PathBuf),
    /// A compiled peer.
    Peer(PathBuf),
}

impl Runner {
    fn new(system: System, options: &Options, folder: &Path) -> Runner {
        let start = if options.workers > 1 && !system.scales() {
            Err("not available: it runs on one worker".to_owned())
        } else if peer::is_compiled(system) {
            peer::compile(system, folder).map(Start::Peer)
        } else {
            Ok(Start::Child(options.program.clone()))
        };
        Runner { system, start }
    }

    fn add(&self, op: Op, options: &Options, collect: &mut Collector) {
        let Ok(start) = &self.start else { return };
        if self.system.lacks(op).is_some() {
            return;
        }
        let run = match process::measure(self.command(start, op, options), options.workers) {
            Ok(ns) => Run::ok(ns),
            Err(why) => Run::invalid(f64::NAN, why),
        };
        collect.add(self.system.name(), op.name(), METRIC, "ns", run);
    }

    fn command(&self, start: &Start, op: Op, options: &Options) -> Command {
        let ms = (options.budget.0 / 1_000_000).to_string();
        let mut command = match start {
            Start::Peer(program) => Command::new(program),
            Start::Child(program) => {
                let mut command = Command::new(program);
                command.args(["bench", "threads", "--workers", &options.workers.to_string()]);
                command.args(["--child", self.system.name()]);
                command
            }
        };
        command.args([op.name(), &ms]);
        command
    }
}

/// The measured rows, and one for each system or operation that is not available.
fn rows(collect: Collector, runners: &[Runner]) -> Vec<Row> {
    let mut rows = collect.into_rows();
    for runner in runners {
        match &runner.start {
            Err(why) => rows.push(missing(runner.system, Op::Yield, why)),
            Ok(_) => rows.extend(
                Op::ALL
                    .into_iter()
                    .filter_map(|op| Some(missing(runner.system, op, runner.system.lacks(op)?))),
            ),
        }
    }
    let place = |row: &Row| runners.iter().position(|runner| runner.system.name() == row.system);
    rows.sort_by_key(place);
    rows
}

fn missing(system: System, op: Op, why: &str) -> Row {
    let mut row = Row::from_runs(system.name(), op.name(), METRIC, "ns", &[]);
    row.note = why.to_owned();
    row
}

/// Whether a row is a failed measurement rather than a system that this machine lacks.
pub fn is_failure(row: &Row) -> bool {
    !row.valid && !row.note.contains("not available")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_system_has_a_row_in_its_place() {
        let mut collect = Collector::new();
        collect.add("go", "yield", METRIC, "ns", Run::ok(118.0));
        let runners = [
            Runner { system: System::BoostFiber, start: Err("not available: install it".into()) },
            Runner { system: System::Go, start: Ok(Start::Peer("go".into())) },
        ];
        let rows = rows(collect, &runners);
        assert_eq!(rows[0].note, "not available: install it");
        assert!(!rows[0].valid && !is_failure(&rows[0]));
        assert_eq!((rows[1].system.as_str(), rows[1].value), ("go", 118.0));
    }

    #[test]
    fn a_run_ends_early_on_request() {
        let systems = vec![System::Std];
        let options = Options {
            systems,
            rounds: 9,
            budget: Ns::ZERO,
            workers: 1,
            program: "/bin/false".into(),
        };
        let mut steps = 0;
        let rows = run(&options, |_| {
            steps += 1;
            steps < 4
        });
        assert_eq!((rows.unwrap().len(), steps), (2, 4));
    }

    #[test]
    fn a_child_that_fails_is_an_invalid_row() {
        let options = Options {
            systems: vec![System::Std],
            rounds: 1,
            budget: Ns::ZERO,
            workers: 1,
            program: "/bin/false".into(),
        };
        let rows = run(&options, |_| true).unwrap();
        assert_eq!(rows.len(), Op::ALL.len());
        assert!(rows.iter().all(is_failure));
    }

    #[test]
    fn a_system_of_one_worker_is_named_where_more_are_asked_for() {
        let options = Options {
            systems: vec![System::Std],
            rounds: 1,
            budget: Ns::ZERO,
            workers: 2,
            program: "/bin/false".into(),
        };
        let rows = run(&options, |_| true).unwrap();
        assert_eq!(rows.len(), 1);
        assert!(!is_failure(&rows[0]) && rows[0].note.ends_with("one worker"), "{rows:?}");
    }
}
