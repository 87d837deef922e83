//! Transactions per second of a central agent, by the number of CPUs (ghOSt, Figure 5), without and with the fast path
//! (section 3.2).
//!
//! The agent is the real one, with a real policy, over the model's machine. Its decision time is measured;
//! the costs of the kernel's side are parameters. Time is simulated: decisions and costs advance it.

mod costs;
mod simulate;
mod stopwatch;

pub use costs::Costs;

use crate::suite::PartResult;
use heddle_core::Ns;
use heddle_metrics::{
    Axis, Cell, Collector, LinePlot, Point, Progress, Row, Run, Series, Table, human,
};
use simulate::{Simulated, simulate};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The case in results.
pub const CASE: &str = "scaling";
/// The paper's policy: one queue for all CPUs.
const POLICY: &str = "fifo";
/// What the name of a curve ends with if the agent offers threads to CPUs.
const OFFERS: &str = ", offers";

/// Options of this part.
#[derive(Clone, Debug)]
pub struct ScalingOptions {
    /// Numbers of CPUs.
    pub cpus: Vec<u16>,
    /// Costs of the kernel's side, one curve each.
    pub costs: Vec<Costs>,
    /// Run time of a thread per dispatch.
    pub work: Ns,
    /// Transactions per point.
    pub transactions: u64,
    /// Rounds.
    pub rounds: u32,
}

impl ScalingOptions {
    /// The default options.
    #[must_use]
    pub fn new(quick: bool) -> ScalingOptions {
        ScalingOptions {
            cpus: if quick {
                vec![4, 32]
            } else {
                vec![1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 112]
            },
            costs: Costs::all(),
            work: Ns::from_us(40),
            transactions: if quick { 2_000 } else { 100_000 },
            rounds: if quick { 1 } else { 5 },
        }
    }

    pub(super) fn steps(&self) -> u64 {
        u64::from(self.rounds)
    }
}

/// Measures all points in interleaved rounds.
///
/// # Errors
/// The policy does not exist.
pub(super) fn run(
    options: &ScalingOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let mut collect = Collector::new();
    for round in 0..options.rounds {
        progress.step(&format!("scaling, round {}", round + 1));
        for &cpus in &options.cpus {
            for costs in &options.costs {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                for fast_path in [false, true] {
                    let found = simulate(options, costs, cpus, fast_path)?;
                    add(&mut collect, &system(costs, fast_path), cpus, &found);
                }
            }
        }
    }
    let rows: Vec<Row> = collect.into_rows().into_iter().map(|row| noted(options, row)).collect();
    let tables = table(options, &rows).into_iter().collect();
    Ok(PartResult { tables, rows, ..PartResult::default() })
}

/// The name of a curve in results.
fn system(costs: &Costs, fast_path: bool) -> String {
    let name = costs.name;
    if fast_path { format!("{name}{OFFERS}") } else { name.into() }
}

/// The rows' load is the number of CPUs.
fn add(collect: &mut Collector, system: &str, cpus: u16, found: &Simulated) {
    let mut at = collect.at_load(f64::from(cpus));
    at.add(system, CASE, "transactions", "1/s", Run::ok(found.rate));
    at.add(system, CASE, "decision_ns", "ns", Run::ok(found.decision_ns));
    at.add(system, CASE, "group_size", "txns", Run::ok(found.group_size));
    at.add(system, CASE, "taken", "%", Run::ok(100.0 * found.taken));
    at.add(system, CASE, "gap_ns", "ns", Run::ok(found.gap_ns));
}

fn noted(options: &ScalingOptions, row: Row) -> Row {
    let costs = options.costs.iter().find(|costs| row.system.starts_with(costs.name));
    let costs = costs.map_or(String::new(), |costs| costs.to_string());
    row.with_note(&format!("simulated CPUs instead of a load; {POLICY}; {costs}"))
}

fn table(options: &ScalingOptions, rows: &[Row]) -> Option<Table> {
    let head =
        ["CPUs", "costs", "picks/s", "rounds", "decision", "group", "without waiting", "gap"];
    let mut table = Table::new("A central agent over simulated CPUs (Figure 5)", head);
    for row in rows.iter().filter(|row| row.metric == "transactions") {
        let find = |metric: &str| {
            rows.iter()
                .find(|r| (r.metric.as_str(), &r.system, r.load) == (metric, &row.system, row.load))
        };
        let show = |metric: &str, unit: &str| {
            find(metric).map_or("-".into(), |row| match unit {
                "ns" => human(row.value, "ns"),
                "%" => format!("{:.0} %", row.value),
                _ => format!("{:.1}", row.value),
            })
        };
        table.push(vec![
            Cell::number(format!("{:.0}", row.load.unwrap_or_default())),
            Cell::text(row.system.clone()),
            Cell::number(human(row.value, "1/s")),
            Cell::number(format!("{}..{}", human(row.min, "1/s"), human(row.max, "1/s"))),
            Cell::number(show("decision_ns", "ns")),
            Cell::number(show("group_size", "")),
            Cell::number(show("taken", "%")),
            Cell::number(show("gap_ns", "ns")),
        ]);
    }
    for costs in &options.costs {
        table.notes.push(format!("{}: {costs}", costs.name));
    }
    table.notes.push(format!(
        "picks: threads that get a CPU, by a transaction or, with offers, because a free CPU takes the one that \
         is next (without waiting for the agent). gap: how long a CPU stands still between two threads. decision: \
         by the real agent with policy {}, measured here, without the model's own time; threads run {} per dispatch",
        POLICY, options.work
    ));
    table.notes.push("The paper's curve on Skylake rises to some 2.4 million per second at about 20 CPUs, drops \
        where the agent shares its core with a thread, and falls slowly where CPUs of the other socket join. \
        The two drops are hardware effects and are not simulated".into());
    (!table.rows.is_empty()).then_some(table)
}

/// The rate over the number of CPUs.
#[must_use]
pub fn plot(rows: &[Row]) -> Option<LinePlot> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows.iter().filter(|row| row.case == CASE && row.metric == "transactions") {
        let at = series.iter().position(|s| s.name == row.system).unwrap_or_else(|| {
            series.push(Series { name: row.system.clone(), points: Vec::new(), emphasis: false });
            series.len() - 1
        });
        let (x, note) = (row.load.unwrap_or_default(), row.note.clone());
        let Row { value: y, min, max, valid, .. } = *row;
        series[at].points.push(Point { x, y, min, max, valid, note });
    }
    (!series.is_empty()).then(|| LinePlot {
        title: "Transactions of one central agent".into(),
        x: Axis { label: "simulated CPUs".into(), unit: String::new() },
        y: Axis { label: "transactions".into(), unit: "1/s".into() },
        series,
        caption: "ghOSt's Figure 5 has the same rise, then drops where the agent shares its core and where CPUs \
            of the other socket join; those are hardware effects and not simulated.".into(),
    })
}
