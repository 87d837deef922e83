//! An agent is replaced under load: how long there is no agent, what fails, and which threads wait.

use super::super::child::{HogReport, LoadReport};
use super::super::launch::Launcher;
use super::{FateOptions, Managed, WARMUP, enclave, name, stopped};
use crate::suite::{PartResult, Target};
use heddle_agent::guardian::{Answer, Folder, Kind, Request, ask};
use heddle_core::Ns;
use heddle_metrics::{Collector, Progress, Row, Run, human};
use heddle_sys::clock;
use std::io;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// The case in results.
const CASE: &str = "upgrade";
/// Replacements in one load.
const UPGRADES: u32 = 3;

/// One replacement, by the system's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Replaced {
    asked: Ns,
    done: Ns,
    gap: Ns,
    failed: u64,
}

/// Replaces the agent several times in each load.
pub(in super::super) fn upgrade(
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
        progress.step(&format!("upgrade, round {}: agents replace each other", round + 1));
        let mut spec = options.spec();
        // Loading programs takes time while hogs run: the load must outlast it.
        spec.duration_ns *= 3;
        let load = Managed::start(launcher, enclave(options, kind), &spec)?;
        let folder = load.wait_for_agent(stop)?.folder;
        let replaced = replace(&folder, options.length)?;
        let report = load.report(&spec, stop)?;
        for one in &replaced {
            add(&mut collect, &name(kind), *one, &report);
            progress.line(&format!(
                "  no agent for {}, {} transactions failed",
                human(one.gap.0 as f64, "ns"),
                one.failed
            ));
        }
    }
    Ok(found(collect.into_rows()))
}

fn replace(folder: &Folder, length: Ns) -> io::Result<Vec<Replaced>> {
    thread::sleep(Duration::from_nanos(WARMUP.0));
    let mut replaced = Vec::new();
    for _ in 0..UPGRADES {
        thread::sleep(Duration::from_nanos(length.0 / u64::from(UPGRADES + 2)));
        let asked = clock::now();
        let answer = match ask(folder, &Request::Upgrade { policy: None }) {
            // The load ended before the last replacement.
            Err(_) if !replaced.is_empty() => break,
            answer => answer.map_err(io::Error::other)?,
        };
        if let Answer::Upgraded { gap_us, failed, .. } = answer {
            replaced.push(Replaced { asked, done: clock::now(), gap: Ns::from_us(gap_us), failed });
        }
    }
    Ok(replaced)
}

fn add(collect: &mut Collector, system: &str, one: Replaced, report: &LoadReport) {
    let (during, else_) = pauses(&report.hogs, one);
    let beyond = Ns(during.0.saturating_sub(one.gap.0).saturating_sub(else_.0));
    for (metric, time) in [("gap_ns", one.gap), ("idle_beyond_gap_ns", beyond)] {
        collect.add(system, CASE, metric, "ns", Run::ok(time.0 as f64));
    }
    collect.add(system, CASE, "failed_commits", "", Run::ok(one.failed as f64));
}

/// The longest pause of any thread that overlaps a replacement, and the longest that does not: threads that
/// share a CPU also wait without an upgrade.
fn pauses(hogs: &[HogReport], one: Replaced) -> (Ns, Ns) {
    let all = || hogs.iter().flat_map(|hog| &hog.gaps);
    let touches = |gap: &super::super::child::Gap| gap.from < one.done.0 && gap.to > one.asked.0;
    let longest = |within: bool| {
        let lengths = all().filter(|gap| touches(gap) == within).map(|gap| gap.length());
        lengths.max().unwrap_or(Ns::ZERO)
    };
    (longest(true), longest(false))
}

fn found(rows: Vec<Row>) -> PartResult {
    let find = |metric: &str| rows.iter().find(|row| row.metric == metric);
    let failed = find("failed_commits")
        .map(|row| Target::never_above("upgrade under load: failed commits", row, 0.0));
    let idle = find("idle_beyond_gap_ns").map(|row| {
        Target::never_above("upgrade under load: idle beyond the gap and a thread's turn", row, 0.0)
    });
    let targets = failed.into_iter().chain(idle).collect();
    PartResult { targets, rows, ..PartResult::default() }
}

#[cfg(test)]
mod tests {
    use super::super::super::child::Gap;
    use super::*;

    #[test]
    fn pauses_during_and_apart_from_a_replacement() {
        let gaps =
            vec![Gap { from: 0, to: 12 }, Gap { from: 90, to: 130 }, Gap { from: 200, to: 210 }];
        let hogs = [HogReport { gaps, ..HogReport::default() }];
        let one = Replaced { asked: Ns(100), done: Ns(120), gap: Ns(20), failed: 0 };
        assert_eq!(pauses(&hogs, one), (Ns(40), Ns(12)));
    }
}
