//! The operations of ghOSt's Table 3 next to the paper's figures, and a wakeup under a central agent compared
//! with the default scheduler.

mod agents;
mod kernel;

use super::child::{SLEEPER, SleeperSpec};
use super::launch::Launcher;
use crate::suite::{PartResult, Target};
use heddle_agent::guardian::Kind;
use heddle_core::Ns;
use heddle_metrics::{Cell, Collector, Histogram, Mark, Progress, Row, Run, Table, human};
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// The case in results.
pub const CASE: &str = "table3";
/// Most that a wakeup can take, as a multiple of the default scheduler's (issue 5).
const WAKEUP: f64 = 1.5;

/// Metric, description, and ghOSt's figure (Table 3; Skylake, 2 x 28 cores).
pub const LINES: [(&str, &str, Option<u32>); 16] = [
    ("delivery_local_ns", "message delivery to a local agent (asleep)", Some(725)),
    ("delivery_global_ns", "message delivery to a global agent (spins)", Some(265)),
    ("local_schedule_ns", "local schedule", Some(888)),
    ("remote_agent_ns", "remote schedule: agent", Some(668)),
    ("remote_target_ns", "remote schedule: target CPU", Some(1064)),
    ("remote_total_ns", "remote schedule: end to end", Some(1772)),
    ("group_agent_ns", "group of commits: agent", Some(3964)),
    ("group_target_ns", "group of commits: target CPUs", Some(1821)),
    ("group_total_ns", "group of commits: end to end", Some(5688)),
    ("gap_commit_ns", "from a thread's sleep to the next thread: commit by a global agent", None),
    ("gap_offer_ns", "from a thread's sleep to the next thread: offered before", None),
    ("syscall_ns", "system call", Some(72)),
    ("pthread_switch_ns", "context switch, sched_yield", Some(410)),
    (
        "sleep_switch_ns",
        "context switch, default scheduler: sleep and wakeup of another",
        Some(599),
    ),
    ("wakeup_ns", "wakeup of a thread on another CPU, until it runs", None),
    ("wakeup_ratio", "the same under the agent, times the default scheduler's", None),
];

/// Options of this part.
#[derive(Clone, Debug)]
pub struct Table3Options {
    /// This binary.
    pub launcher: Launcher,
    /// Rounds.
    pub rounds: u32,
    /// Samples of each operation in a round.
    pub samples: u32,
    /// The CPU of the central agent and of the waker.
    pub agent_cpu: u32,
    /// The CPU of the thread.
    pub thread_cpu: u32,
}

impl Table3Options {
    pub(super) fn steps(&self) -> u64 {
        self.rounds.into()
    }

    /// Starts a sleeping thread that runs for `run` each time. It would inherit its waker's affinity.
    fn sleeper(&self, run: Ns) -> Command {
        let spec = SleeperSpec { cpus: vec![self.thread_cpu], run_ns: run.0 };
        self.launcher.alone(&self.launcher.child(SLEEPER, &spec))
    }
}

/// Collects the medians of one round.
struct Medians<'a> {
    collect: &'a mut Collector,
    system: String,
}

impl Medians<'_> {
    fn add(&mut self, metric: &str, samples: &Histogram) {
        let value = samples.p50().0 as f64;
        let run = match samples.is_empty() {
            true => Run::invalid(f64::NAN, "no samples"),
            false => Run::ok(value),
        };
        self.collect.add(&self.system, CASE, metric, "ns", run);
    }

    fn mean(&mut self, metric: &str, ns: f64) {
        self.collect.add(&self.system, CASE, metric, "ns", Run::ok(ns));
    }
}

/// Measures in interleaved rounds: the kernel's own operations, then the agent's.
///
/// # Errors
/// System errors.
pub(super) fn run(
    options: &Table3Options,
    kind: Option<Kind>,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let mut collect = Collector::new();
    let allowed = heddle_sys::thread::affinity()?;
    for round in 0..options.rounds {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        progress.step(&format!("table3, round {}", round + 1));
        let mut default = Medians { collect: &mut collect, system: "default".into() };
        let done = kernel::measure(options, &mut default).and_then(|wakeup| {
            let Some(kind) = kind else { return Ok(()) };
            let mut agent = Medians { collect: &mut collect, system: format!("agent-{kind}") };
            let under = agents::measure(options, kind, &mut agent)?;
            let ratio = under.0 as f64 / wakeup.0.max(1) as f64;
            collect.add(&format!("agent-{kind}"), CASE, "wakeup_ratio", "x", Run::ok(ratio));
            Ok(())
        });
        // The measuring threads were pinned; later parts must not be.
        heddle_sys::thread::pin(&allowed)?;
        done?;
    }
    Ok(found(collect.into_rows(), kind))
}

fn found(rows: Vec<Row>, kind: Option<Kind>) -> PartResult {
    let tables = table(&rows).into_iter().collect();
    let ratio = rows.iter().find(|row| row.metric == "wakeup_ratio");
    // The issue sets no target for rt: a parked thread needs no agent to run on an idle CPU.
    let asked = ratio.filter(|_| kind == Some(Kind::Scx));
    let target = asked.map(|row| {
        Target::at_most(
            "wakeup to running under a central agent over the default scheduler's, p50",
            row,
            WAKEUP,
        )
    });
    PartResult { targets: target.into_iter().collect(), tables, rows, ..PartResult::default() }
}

/// All operations, next to the paper's.
#[must_use]
pub fn table(rows: &[Row]) -> Option<Table> {
    let head = ["operation", "system", "p50", "rounds", "paper", "over the paper's"];
    let mut table = Table::new("Operations (Table 3)", head);
    for (metric, what, paper) in LINES {
        for row in rows.iter().filter(|row| row.metric == metric) {
            let show = |value: f64| match row.unit.as_str() {
                "ns" => human(value, "ns"),
                _ => format!("{value:.2}"),
            };
            let mark = if row.valid { Mark::Plain } else { Mark::Invalid };
            let over = paper.map(|paper| row.value / f64::from(paper));
            table.push(vec![
                Cell::text(what),
                Cell::text(row.system.clone()),
                Cell::number(show(row.value)).marked(mark),
                Cell::number(format!("{}..{}", show(row.min), show(row.max))),
                Cell::number(paper.map_or("-".into(), |paper| format!("{paper}ns"))),
                Cell::number(over.map_or("-".into(), |over| format!("{over:.1}"))),
            ]);
        }
    }
    table.notes.push(
        "Medians of each round, then of the rounds. The agent here is a minimal one at default \
        priority that commits each thread that wakes up. The paper's machine is a Skylake without \
        virtualisation: compare the order, and ratios between lines"
            .into(),
    );
    table.notes.push("delivery: from the time in the message to its reading. target CPU: from the end of the \
        commit to the thread's switch; end to end: from its start. rt: a thread with ordinary work runs on the \
        CPU and is preempted. wakeup: from before the write into the pipe to after its read. From a thread's sleep: \
        from its message to the switch to the other one".into());
    (!table.rows.is_empty()).then_some(table)
}

/// The time since a past moment; zero if clocks disagree slightly.
fn since(from: Ns, to: Ns) -> Ns {
    Ns(to.0.saturating_sub(from.0))
}
