//! The bench as an HTML report.

use super::bench::{AgentOptions, Outcome, conditions};
use super::scaling;
use heddle_metrics::{BarChart, LinePlot, Report, Results};

/// Delays, tails, the scaling of a central agent, all tables.
#[must_use]
pub fn report(options: &AgentOptions, outcome: &Outcome, results: &Results) -> Report {
    let mut report = Report::new("Agents");
    for target in &outcome.targets {
        report = report.headline(target.line());
    }
    report = report.section(
        "Threads of the kernel, scheduled by agents",
        "Targets above; figures and tables below.",
    );
    let delays = results.with_metrics(&["p99_ns"]);
    if !delays.rows.is_empty() {
        let title = "p99 delay of a short periodic thread beside hogs";
        report = report.bars(BarChart::of(&delays, "p99_ns", title));
    }
    let tails = LinePlot::over_load(results, "get", "p99", "GET p99 beside antagonists");
    if tails.series.iter().any(|series| !series.points.is_empty()) {
        report = report.plot(tails);
    }
    if let Some(plot) = scaling::plot(&results.rows) {
        report = report.plot(plot);
    }
    for table in &outcome.tables {
        report = report.table(table.clone());
    }
    for (part, why) in outcome.skipped.iter().chain(&outcome.failed) {
        report = report.notes(format!("{part}: {why}."));
    }
    for note in conditions(options) {
        report = report.notes(note);
    }
    report.results(results.clone())
}
