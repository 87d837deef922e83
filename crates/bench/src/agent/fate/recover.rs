//! An agent is killed: time until all its threads have run again.

use super::super::child::LoadReport;
use super::super::launch::Launcher;
use super::{FateOptions, LOST, Managed, WARMUP, enclave, name, stopped};
use crate::suite::{PartResult, Target};
use heddle_agent::guardian::Kind;
use heddle_core::Ns;
use heddle_metrics::{Collector, Progress, Row, Run, human};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// The case in results.
const CASE: &str = "recover";
/// Target for that time (issue 5).
const MOST: Ns = Ns::from_ms(250);

/// Kills an agent in the middle of each load.
pub(in super::super) fn recover(
    options: &FateOptions,
    kind: Kind,
    launcher: &Launcher,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let mut collect = Collector::new();
    for round in 0..options.rounds {
        if stopped(stop) {
            break;
        }
        progress.step(&format!("recover, round {}: an agent is killed", round + 1));
        let (report, killed) = kill_in_the_middle(options, kind, launcher, stop)?;
        let again = until_all_ran(&report, killed);
        let lost = report.lost(LOST);
        let time = human(again.0 as f64, "ns");
        progress.line(&format!("  all threads ran again after {time}, {lost} lost"));
        let system = name(kind);
        collect.add(&system, CASE, "all_progress_ns", "ns", Run::ok(again.0 as f64));
        collect.add(&system, CASE, "lost_threads", "", Run::ok(lost as f64));
    }
    Ok(found(collect.into_rows()))
}

fn kill_in_the_middle(
    options: &FateOptions,
    kind: Kind,
    launcher: &Launcher,
    stop: &AtomicBool,
) -> io::Result<(LoadReport, Ns)> {
    let spec = options.spec();
    let load = Managed::start(launcher, enclave(options, kind), &spec)?;
    let record = load.wait_for_agent(stop)?.record;
    thread::sleep(Duration::from_nanos(WARMUP.0 + options.length.0 / 4));
    let agent = record.agent.and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let agent = agent.ok_or_else(|| io::Error::other("the enclave has no agent"))?;
    let killed = heddle_sys::clock::now();
    kill_process(agent, Signal::KILL)?;
    Ok((load.report(&spec, stop)?, killed))
}

/// When the last thread had run again.
fn until_all_ran(report: &LoadReport, killed: Ns) -> Ns {
    report.hogs.iter().map(|hog| hog.ran_after(killed)).max().unwrap_or(Ns::MAX)
}

fn found(rows: Vec<Row>) -> PartResult {
    let find = |metric: &str| rows.iter().find(|row| row.metric == metric);
    let time = find("all_progress_ns")
        .map(|row| Target::never_above("agent killed: all threads run again", row, MOST.0 as f64));
    let lost = find("lost_threads").map(|row| Target::never_above("agent killed: lost", row, 0.0));
    let targets = time.into_iter().chain(lost).collect();
    PartResult { targets, rows, ..PartResult::default() }
}
