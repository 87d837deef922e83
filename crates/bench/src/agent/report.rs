//! The bench as an HTML report.

use super::{Part, scaling};
use crate::suite::Outcome;
use heddle_metrics::{BarChart, LinePlot, Report, Results};

/// Delays, tails, the scaling of a central agent, all tables.
pub(super) fn report(
    conditions: Vec<String>,
    outcome: &Outcome<Part>,
    results: &Results,
) -> Report {
    let head = (
        "Agents",
        "Threads of the kernel, scheduled by agents",
        "Targets above; figures and tables below.",
    );
    outcome.report(head, |report| figures(results, report), conditions, results)
}

fn figures(results: &Results, mut report: Report) -> Report {
    let delays = results.with_metrics(&["p99_ns"]);
    if !delays.rows.is_empty() {
        let title = "p99 delay of a short periodic thread beside hogs";
        report = report.bars(BarChart::of(&delays, "p99_ns", title));
    }
    let tails = LinePlot::over_load(results, "get", "p99", "GET p99 beside antagonists");
    if tails.series.iter().any(|series| !series.points.is_empty()) {
        report = report.plot(tails);
    }
    match scaling::plot(&results.rows) {
        Some(plot) => report.plot(plot),
        None => report,
    }
}
