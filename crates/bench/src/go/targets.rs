//! Targets (issue 7) and tables.

use super::part::Part;
use super::rows::{BEST, COST, GAIN, OVER_ASPEN};
use super::system::System;
use crate::suite::Target;
use heddle_metrics::{Results, Row, Table};

/// How many times lower the p99 of short requests must be than the stock runtime's.
const OVER_STOCK: f64 = 2.0;
/// The same against Aspen's policy at the same quantum.
const ASPEN: f64 = 1.7;
/// Most additional CPU time of computing programs, in per cent.
const CPU: f64 = 2.0;
/// The same for a hot mutex, a saturated TCP echo and a ticker.
const CLOSE: f64 = 5.0;
/// The same for goroutines that switch between calls of C (issue 15).
const CGO: f64 = 20.0;
/// The least noise assumed, if the stock runtime's own rounds vary less: for times under load, and for programs.
const NOISE: (f64, f64) = (1.05, 1.01);

/// Tables of a part's rows.
pub(super) fn tables(part: Part, rows: &[Row]) -> Vec<Table> {
    let shown: &[&str] = match part {
        Part::BadgerUdp | Part::BadgerHttp => &[
            "short_p50_ns",
            "short_p99_ns",
            "short_p999_ns",
            "long_p50_ns",
            "long_p99_ns",
            GAIN,
            OVER_ASPEN,
            "achieved",
            "cpu_percent",
        ],
        Part::Cpu => &[BEST, COST],
    };
    heddle_metrics::tables(&Results::here(rows.to_vec()).with_metrics(shown))
}

fn find<'a>(rows: &[&'a Row], system: &System, metric: &str) -> Option<&'a Row> {
    let name = system.to_string();
    rows.iter().find(|row| row.system == name && row.metric == metric).copied()
}

/// Targets of a server, at each load.
pub(super) fn tails(case: &str, systems: &[System], rows: &[Row]) -> Vec<Target> {
    let mut loads: Vec<f64> = Vec::new();
    for load in rows.iter().filter_map(|row| row.load) {
        if !loads.contains(&load) {
            loads.push(load);
        }
    }
    loads.iter().flat_map(|&load| at_load(case, load, systems, rows)).collect()
}

fn at_load(case: &str, load: f64, systems: &[System], rows: &[Row]) -> Vec<Target> {
    let here: Vec<&Row> = rows.iter().filter(|row| row.load == Some(load)).collect();
    let at = format!("{case} at {}", heddle_metrics::human(load, "1/s"));
    let gain = |metric, other: String, least| {
        let chief = System::chief(systems)?;
        let row = find(&here, &chief, metric)?;
        Some(Target::at_least(&format!("{at}: {other}'s short p99 over {chief}'s"), row, least))
    };
    let aspen = System::chief(systems).and_then(System::aspen);
    let aspen = aspen.map_or(String::new(), |system| system.to_string());
    let p99 = |system| find(&here, system, "short_p99_ns");
    let off = p99(&System::OFF).zip(p99(&System::STOCK)).map(|(off, stock)| {
        let what = format!("{at}: heddle-off's short p99 within stock's own rounds");
        Target::at_most(&what, off, stock.max.max(stock.value * NOISE.0))
    });
    let gains = [gain(GAIN, "stock".into(), OVER_STOCK), gain(OVER_ASPEN, aspen, ASPEN)];
    gains.into_iter().chain([off]).flatten().collect()
}

/// Targets of small programs: each for the main system, the worst with everything off.
pub(super) fn costs(systems: &[System], rows: &[Row]) -> Vec<Target> {
    let chief = System::chief(systems).map(|system| system.to_string());
    let of_chief =
        rows.iter().filter(|row| row.metric == COST && Some(&row.system) == chief.as_ref());
    let cost = |row: &Row| {
        let what = format!("{}: {}'s CPU time above stock's", row.case, row.system);
        Target::at_most(&what, row, most(&row.case))
    };
    of_chief.map(cost).chain(off(rows)).collect()
}

/// Most additional CPU time of a program, in per cent.
fn most(case: &str) -> f64 {
    match case {
        "tcp-echo" | "ticker" => CLOSE,
        _ if case.contains("mutex") => CLOSE,
        _ if case.starts_with("cgo") => CGO,
        _ => CPU,
    }
}

/// The case whose median with everything off is farthest above the slowest round of stock.
fn off(rows: &[Row]) -> Option<Target> {
    let name = System::OFF.to_string();
    let bound = |row: &Row| {
        let stock = |it: &&Row| {
            it.system == System::STOCK.to_string() && it.case == row.case && it.metric == BEST
        };
        rows.iter().find(stock).map(|stock| stock.max.max(stock.value * NOISE.1))
    };
    let ours = rows.iter().filter(|row| row.system == name && row.metric == BEST);
    let bounded = ours.filter_map(|row| Some((row, bound(row)?)));
    let (row, most) = bounded.max_by(|a, b| (a.0.value / a.1).total_cmp(&(b.0.value / b.1)))?;
    let what = format!("{name} within stock's own rounds (worst: {})", row.case);
    Some(Target::at_most(&what, row, most))
}
