//! Targets (issue 6) and tables.

use super::loaded::LoadedOptions;
use super::part::Part;
use super::system::System;
use super::{idle, overhead, pipes, priority};
use crate::suite::Target;
use heddle_metrics::{Results, Row, Table};

/// Most additional cycles per event over one epoll per thread: SKQ's own figure.
const CYCLES: f64 = 150.0;
/// Least throughput relative to one epoll per thread if a policy cannot help.
const THROUGHPUT: f64 = 0.97;
/// Factor by which the light requests' p99 must be below that of one epoll per thread: case, load, factor.
const GAINS: [(&str, f64, f64); 4] =
    [("zippydb", 0.35, 6.0), ("zippydb", 0.60, 4.0), ("gis", 0.40, 8.0), ("gis", 0.60, 15.0)];
/// The same relative to one shared epoll.
const OVER_SHARED: f64 = 1.5;
/// Most difference between the busiest and the least busy thread in the GIS workload, in per cent.
const IMBALANCE: f64 = 5.0;
/// Most p99 of a high-priority client under full load, relative to the idle p99.
const OVER_IDLE: f64 = 2.0;
/// Most that this client's priority can cost the others, in their light p99.
const UNHARMED: f64 = 1.25;

/// Tables of a part's rows.
pub(super) fn tables(part: Part, rows: &[Row]) -> Vec<Table> {
    let shown: &[&str] = match part {
        Part::Overhead => &["cycles_per_event", overhead::OVER],
        Part::Pipes | Part::Uniform => &["throughput", "throughput_ratio"],
        Part::ZippyDb | Part::Gis | Part::Dilated => &[
            "light_p50_ns",
            "light_p99_ns",
            "light_p999_ns",
            "p99_ns",
            "light_p99_gain",
            "light_p99_over_shared",
            "imbalance_percent",
        ],
        Part::Memcached | Part::Web => {
            &["p50_ns", "p99_ns", "p999_ns", "throughput", "p99_gain", "imbalance_percent"]
        }
        Part::Priority => &[
            "probe_idle_p99_ns",
            "probe_p99_ns",
            "probe_over_idle",
            "others_light_p99_ns",
            "others_over_without",
        ],
        Part::Idle => &[idle::CPUS],
    };
    heddle_metrics::tables(&Results::here(rows.to_vec()).with_metrics(shown))
}

fn find<'a>(rows: &'a [Row], system: &str, case: &str, metric: &str) -> Option<&'a Row> {
    let same = |row: &&Row| row.system == system && row.case == case && row.metric == metric;
    rows.iter().find(same)
}

pub(super) fn overhead(systems: &[System], rows: &[Row]) -> Vec<Target> {
    let of = |chief: &System| {
        let row = find(rows, &chief.to_string(), overhead::CASE, overhead::OVER)?;
        Some(Target::at_most(&format!("overhead: {chief} over one epoll per thread"), row, CYCLES))
    };
    System::chief(systems).and_then(of).into_iter().collect()
}

/// Throughput; with two threads if several numbers of threads were measured.
pub(super) fn throughput(case: &str, systems: &[System], rows: &[Row]) -> Vec<Target> {
    let full = if case == Part::Pipes.to_string() { pipes::case(2) } else { case.into() };
    let of = |chief: &System| {
        let row = find(rows, &chief.to_string(), &full, "throughput_ratio")?;
        let what = format!("{full}: {chief}'s throughput over that of one epoll per thread");
        Some(Target::at_least(&what, row, THROUGHPUT))
    };
    System::chief(systems).and_then(of).into_iter().collect()
}

pub(super) fn tails(options: &LoadedOptions, rows: &[Row]) -> Vec<Target> {
    let Some(chief) = System::chief(&options.systems) else { return Vec::new() };
    let (chief, case) = (chief.to_string(), options.workload.name);
    let mut targets = Vec::new();
    for &load in &options.loads {
        let rate = options.workload.capacity() * load;
        let near = |row: &&Row| row.load.is_some_and(|at| (at / rate - 1.0).abs() < 1e-6);
        let here: Vec<Row> = rows.iter().filter(near).cloned().collect();
        let row = |metric| find(&here, &chief, case, metric);
        let what = |what: &str| format!("{case} at {:.0} %: {what}", load * 100.0);
        let goal = |of: &&(&str, f64, f64)| of.0 == case && (of.1 - load).abs() < 1e-6;
        if let (Some((.., least)), Some(row)) = (GAINS.iter().find(goal), row("light_p99_gain")) {
            let what = what(&format!("one epoll per thread's light p99 over {chief}'s"));
            targets.push(Target::at_least(&what, row, *least));
        }
        if let Some(row) = row("light_p99_over_shared") {
            let what = what(&format!("{chief}'s light p99 over one shared epoll's"));
            targets.push(Target::at_most(&what, row, OVER_SHARED));
        }
        if let Some(row) = row("imbalance_percent").filter(|_| options.workload.by_connection) {
            let what = what(&format!("{chief}'s least busy thread under its busiest"));
            targets.push(Target::at_most(&what, row, IMBALANCE));
        }
    }
    targets
}

pub(super) fn priority(chief: Option<&System>, rows: &[Row]) -> Vec<Target> {
    let Some(chief) = chief else { return Vec::new() };
    let name = priority::name(chief, true);
    let of = |metric, what: &str, most| {
        let row = find(rows, &name, priority::CASE, metric)?;
        Some(Target::at_most(&format!("priority: {what}"), row, most))
    };
    let probe =
        of("probe_over_idle", "the client's p99 under full load over its idle one", OVER_IDLE);
    let others =
        of("others_over_without", "others' light p99 over that without its priority", UNHARMED);
    probe.into_iter().chain(others).collect()
}
