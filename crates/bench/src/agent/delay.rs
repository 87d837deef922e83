//! How long a short periodic thread waits for its CPU while other threads want it all the time.

use super::child::{LoadReport, LoadSpec, PeriodicSpec};
use super::launch::Launcher;
use super::system::System;
use crate::suite::Target;
use heddle_core::Ns;
use heddle_metrics::{Better, Cell, Collector, Mark, Progress, Row, Run, Table, human};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The case in results.
pub const CASE: &str = "wakeup";
/// Least factor by which an agent must lower the p99 (issue 5).
const GAIN: f64 = 10.0;
/// Most that the kernel's fair scheduler under Heddle can take, relative to the best manual setting (issue 15).
const BY_HAND: f64 = 1.1;
/// Most deviation of hogs from equal shares, in per cent.
const SHARES: f64 = 15.0;

/// Options of this part.
#[derive(Clone, Debug)]
pub struct DelayOptions {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// The CPU of the load.
    pub cpu: u32,
    /// Hogs.
    pub hogs: usize,
    /// Period of the thread.
    pub period: Ns,
    /// Work per period.
    pub work: Ns,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each measurement.
    pub duration: Ns,
}

impl DelayOptions {
    fn spec(&self) -> LoadSpec {
        LoadSpec {
            hogs: self.hogs,
            periodic: Some(PeriodicSpec {
                period_ns: self.period.0,
                work_ns: self.work.0,
                ..PeriodicSpec::default()
            }),
            warmup_ns: Ns::from_ms(500).0,
            duration_ns: self.duration.0,
            ..LoadSpec::default()
        }
    }
}

/// Measures in interleaved rounds. A system that cannot run gets an invalid row with the reason.
///
/// # Errors
/// The default scheduler's load failed.
pub fn run(
    options: &DelayOptions,
    launcher: &Launcher,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let mut collect = Collector::new();
    for round in 0..options.rounds {
        let mut before = Baselines::default();
        for system in &options.systems {
            if stop.load(Ordering::Relaxed) {
                return Ok(collect.into_rows());
            }
            progress.step(&format!("delay, round {}: {system}", round + 1));
            let done = launcher.load(system, &[options.cpu], &options.spec(), stop);
            match done {
                Ok(report) => {
                    progress.line(&line(system, &report));
                    add(&mut collect, system, &report, before);
                    before.note(system, p99(&report));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if system == &System::Default => return Err(error),
                Err(error) => {
                    progress.line(&format!("  {system}: {error}"));
                    let run = Run::invalid(f64::NAN, error.to_string());
                    collect.add(&system.to_string(), CASE, "p99_ns", "ns", run);
                }
            }
        }
    }
    Ok(noted(options, collect.into_rows()))
}

/// The p99 of systems before this one in the same round, in ns.
#[derive(Clone, Copy, Default)]
struct Baselines {
    default: Option<f64>,
    fifo: Option<f64>,
    /// The lowest p99 of the manual settings.
    by_hand: Option<f64>,
}

impl Baselines {
    fn note(&mut self, system: &System, p99: Option<f64>) {
        match system {
            System::Default => self.default = p99,
            System::Fifo => self.fifo = p99,
            _ => {}
        }
        if System::BY_HAND.contains(system) {
            self.by_hand = [self.by_hand, p99].into_iter().flatten().reduce(f64::min);
        }
    }
}

fn p99(report: &LoadReport) -> Option<f64> {
    let delays = &report.periodic.as_ref()?.delays;
    (!delays.is_empty()).then(|| delays.p99().0 as f64)
}

fn add(collect: &mut Collector, system: &System, report: &LoadReport, before: Baselines) {
    let name = system.to_string();
    let Some(periodic) = &report.periodic else { return };
    let delays = &periodic.delays;
    let times = [
        ("p50_ns", delays.p50()),
        ("p90_ns", delays.p90()),
        ("p99_ns", delays.p99()),
        ("p999_ns", delays.p999()),
        ("max_ns", delays.max()),
    ];
    for (metric, time) in times {
        let run = match delays.is_empty() {
            true => Run::invalid(
                f64::NAN,
                periodic.failed.as_deref().unwrap_or("no samples").to_owned(),
            ),
            false => Run::ok(time.0 as f64),
        };
        collect.add(&name, CASE, metric, "ns", run);
    }
    let error = report.share_error_percent();
    collect.add(&name, CASE, "share_error_percent", "%", Run::ok(error));
    collect.add(&name, CASE, "hogs_percent", "%", Run::ok(report.hogs_percent()));
    let Some(p99) = p99(report) else { return };
    let mut ratio = |metric: &str, value: Option<f64>| {
        if let Some(value) = value {
            collect.add(&name, CASE, metric, "x", Run::ok(value));
        }
    };
    ratio("p99_gain", before.default.map(|default| default / p99));
    if system == &System::fair() {
        ratio("p99_over_fifo", before.fifo.map(|fifo| p99 / fifo));
        ratio("p99_over_best_by_hand", before.by_hand.map(|best| p99 / best));
    }
}

fn noted(options: &DelayOptions, rows: Vec<Row>) -> Vec<Row> {
    let of = |row: &Row| options.systems.iter().find(|system| system.to_string() == row.system);
    let note = |row: Row| {
        let policy = of(&row).and_then(System::policy).map(|policy| format!("policy {policy}"));
        let row = row.with_note(&policy.unwrap_or_default());
        match row.metric.as_str() {
            "p99_gain" | "hogs_percent" => row.with_better(Better::Higher),
            _ => row,
        }
    };
    rows.into_iter().map(note).collect()
}

fn line(system: &System, report: &LoadReport) -> String {
    let Some(periodic) = &report.periodic else { return String::new() };
    let time = |time: Ns| human(time.0 as f64, "ns");
    format!(
        "  {:24} delay p50 {:>8}  p99 {:>8}  p99.9 {:>8}  hogs {:.1} % off equal shares",
        system.to_string(),
        time(periodic.delays.p50()),
        time(periodic.delays.p99()),
        time(periodic.delays.p999()),
        report.share_error_percent()
    )
}

/// One line per system.
#[must_use]
pub fn table(options: &DelayOptions, rows: &[Row]) -> Option<Table> {
    let title = format!(
        "Delay of a thread with {} of work every {}, beside {} hogs on one CPU",
        options.work, options.period, options.hogs
    );
    let head = [
        "system",
        "p50",
        "p99",
        "rounds",
        "p99.9",
        "default's p99 over it",
        "hogs off",
        "of the CPU",
    ];
    let mut table = Table::new(title, head);
    for system in &options.systems {
        let name = system.to_string();
        let find = |metric: &str| row(rows, &name, metric);
        let Some(p99) = find("p99_ns") else { continue };
        let mark = if p99.valid { Mark::Plain } else { Mark::Invalid };
        let time = |metric| find(metric).map_or("-".into(), |row| human(row.value, "ns"));
        let plain = |metric: &str, unit: &str| {
            find(metric).map_or("-".into(), |row| format!("{:.1}{unit}", row.value))
        };
        table.push(vec![
            Cell::text(name.clone()),
            Cell::number(time("p50_ns")),
            Cell::number(time("p99_ns")).marked(mark),
            Cell::number(format!("{}..{}", human(p99.min, "ns"), human(p99.max, "ns"))),
            Cell::number(time("p999_ns")),
            Cell::number(plain("p99_gain", "")),
            Cell::number(plain("share_error_percent", " %")),
            Cell::number(plain("hogs_percent", " %")),
        ]);
        if let Some(policy) = system.policy() {
            table.notes.push(format!("{name}: {policy}"));
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

fn row<'a>(rows: &'a [Row], system: &str, metric: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.case == CASE && row.system == system && row.metric == metric)
}

/// Targets for the kernel's fair scheduler under Heddle, and for the main agent.
#[must_use]
pub fn targets(options: &DelayOptions, rows: &[Row]) -> Vec<Target> {
    let fair = System::fair().to_string();
    let over = |metric: &str, what: &str| {
        let row = row(rows, &fair, metric)?;
        Some(Target::at_most(&format!("delay: {fair}'s p99 over {what}"), row, BY_HAND))
    };
    let fair = over("p99_over_fifo", "that of chrt -f 1")
        .into_iter()
        .chain(over("p99_over_best_by_hand", "the best that is done by hand"));
    let Some(chief) = options.systems.iter().find(|system| system.is_chief()) else {
        return fair.collect();
    };
    let name = chief.to_string();
    let gain = row(rows, &name, "p99_gain").map(|row| {
        Target::at_least(&format!("delay: the default scheduler's p99 over {name}'s"), row, GAIN)
    });
    let shares = row(rows, &name, "share_error_percent")
        .map(|row| Target::at_most(&format!("delay: hogs off equal shares, {name}"), row, SHARES));
    fair.chain(gain).chain(shares).collect()
}
