//! Sixteen commits in one group, compared with sixteen single ones.

use super::child::{LOAD, LoadSpec};
use super::launch::Launcher;
use super::running::Running;
use super::table3::Table3Options;
use super::testbed::Testbed;
use crate::suite::{PartResult, Target};
use heddle_agent::guardian::Kind;
use heddle_agent::model::{Group, Outcome, State, Transaction};
use heddle_core::{CpuId, Ns, TaskId};
use heddle_metrics::{Better, Cell, Collector, Progress, Row, Run, Table, human};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The case in results.
const CASE: &str = "group";
/// Transactions in a group.
const SIZE: usize = 16;
/// By which factor a group must be cheaper (issue 5).
const CHEAPER: f64 = 3.0;
/// Longer than any thread takes to park.
const PATIENCE: Duration = Duration::from_secs(20);

/// The way to commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommitMode {
    Together,
    Single,
}

/// Measures both ways in turn.
///
/// # Errors
/// Kernel errors.
pub(super) fn run(
    options: &Table3Options,
    kind: Kind,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    progress.step("group: sixteen commits at once and one by one");
    let all = heddle_sys::thread::affinity()?;
    let cpus: Vec<u32> = all.iter().copied().filter(|&cpu| cpu != options.agent_cpu).collect();
    let bench = Bench::new(&options.launcher, kind, &cpus)?;
    heddle_sys::thread::pin(&[options.agent_cpu])?;
    let mut collect = Collector::new();
    let done = bench.rounds(options, kind, stop, &mut collect);
    heddle_sys::thread::pin(&all)?;
    done?;
    Ok(found(collect.into_rows(), cpus.len()))
}

struct Bench {
    testbed: Testbed,
    _load: Running,
    threads: Vec<TaskId>,
    cpus: usize,
}

impl Bench {
    fn new(launcher: &Launcher, kind: Kind, cpus: &[u32]) -> io::Result<Bench> {
        let duration_ns = Ns::from_secs(120).0;
        let spec = LoadSpec { hogs: SIZE, cpus: cpus.to_vec(), duration_ns, ..LoadSpec::default() };
        let load = Running::start(launcher.alone(&launcher.child(LOAD, &spec)))?;
        until_threads(load.pid(), SIZE + 1)?;
        let testbed = Testbed::open(kind, cpus)?;
        let joined = testbed.join(load.pid())?;
        // The main thread joins the others, and stays asleep.
        let backend = testbed.backend();
        let hogs = joined.into_iter().filter(|&thread| backend.thread(thread).tid != load.pid());
        let threads = hogs.take(SIZE).collect();
        Ok(Bench { threads, testbed, _load: load, cpus: cpus.len() })
    }

    fn rounds(
        &self,
        options: &Table3Options,
        kind: Kind,
        stop: &AtomicBool,
        collect: &mut Collector,
    ) -> io::Result<()> {
        let system = format!("agent-{kind}");
        for _ in 0..options.rounds * 20 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let Some(together) = self.measure(CommitMode::Together)? else { continue };
            let Some(single) = self.measure(CommitMode::Single)? else { continue };
            let mut add = |metric: &str, unit: &str, value: f64| {
                collect.add(&system, CASE, metric, unit, Run::ok(value));
            };
            add("group_agent_ns", "ns", together.0 as f64);
            add("single_agent_ns", "ns", single.0 as f64);
            add("group_gain", "x", single.0 as f64 / together.0.max(1) as f64);
        }
        Ok(())
    }

    /// Time for the agent to commit all threads, which are parked before. `None` if a thread was just being
    /// moved, or had a newer message: on an emulated machine a CPU can stall in the middle.
    fn measure(&self, how: CommitMode) -> io::Result<Option<Ns>> {
        self.park_all()?;
        let backend = self.testbed.backend();
        let mut transactions: Vec<Transaction> =
            (0..).map(|at| self.transaction(at)).take(SIZE).collect();
        let begin = backend.now();
        match how {
            CommitMode::Together => drop(backend.commit(&mut transactions, Group::Each)),
            CommitMode::Single => {
                for one in transactions.chunks_mut(1) {
                    backend.commit(one, Group::Each);
                }
            }
        }
        let took = backend.now() - begin;
        let failed = transactions.iter().map(|one| one.outcome).find(|it| !it.is_committed());
        match failed {
            None => Ok(Some(took)),
            Some(Outcome::Again | Outcome::Stale) => Ok(None),
            Some(outcome) => Err(io::Error::other(format!("a commit failed with {outcome:?}"))),
        }
    }

    /// One thread per CPU, in turn if there are fewer CPUs.
    fn transaction(&self, at: usize) -> Transaction {
        let thread = self.threads[at];
        let word = self.testbed.backend().thread(thread);
        let cpu = CpuId((at % self.cpus) as u16);
        Transaction::new(thread, word.tid, cpu, word.tseq)
    }

    fn park_all(&self) -> io::Result<()> {
        let begin = Instant::now();
        let backend = self.testbed.backend();
        loop {
            for cpu in 0..self.cpus {
                let cpu = CpuId(cpu as u16);
                backend.recall(cpu);
                backend.preempt(cpu);
            }
            self.testbed.drain();
            let parked = |&&thread: &&TaskId| backend.thread(thread).state == State::Parked;
            if self.threads.iter().filter(parked).count() == self.threads.len() {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(io::Error::other("threads do not park"));
            }
            thread::sleep(Duration::from_micros(100));
        }
    }
}

fn until_threads(pid: u32, threads: usize) -> io::Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let there = std::fs::read_dir(format!("/proc/{pid}/task"))?.count();
        if there >= threads {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Err(io::Error::other("the load has not begun"))
}

fn found(rows: Vec<Row>, cpus: usize) -> PartResult {
    let note = format!("{SIZE} transactions to {cpus} CPUs");
    let direction = |row: Row| match row.metric.as_str() {
        "group_gain" => row.with_better(Better::Higher),
        _ => row,
    };
    let rows: Vec<Row> = rows.into_iter().map(|row| direction(row.with_note(&note))).collect();
    let gain = rows.iter().find(|row| row.metric == "group_gain");
    let target = gain
        .map(|row| Target::at_least("group of 16 commits against 16 single ones", row, CHEAPER));
    PartResult {
        targets: target.into_iter().collect(),
        tables: table(&rows, &note).into_iter().collect(),
        rows,
        ..PartResult::default()
    }
}

fn table(rows: &[Row], note: &str) -> Option<Table> {
    let mut table = Table::new("Sixteen commits", ["what", "agent's time", "rounds"]);
    for (metric, what) in [("group_agent_ns", "one group"), ("single_agent_ns", "one by one")] {
        let Some(row) = rows.iter().find(|row| row.metric == metric) else { continue };
        table.push(vec![
            Cell::text(what),
            Cell::number(human(row.value, "ns")),
            Cell::number(format!("{}..{}", human(row.min, "ns"), human(row.max, "ns"))),
        ]);
    }
    table.notes.push(note.into());
    (!table.rows.is_empty()).then_some(table)
}
