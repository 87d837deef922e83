//! The bench as an HTML report.

use heddle_metrics::{Axis, BarChart, LinePlot, Point, Report, Results, Row, Series};

use super::bench::{Outcome, SteerOptions, conditions};
use super::mixes::Case;

/// Latency against load, decisions, all tables.
#[must_use]
pub fn report(options: &SteerOptions, outcome: &Outcome, results: &Results) -> Report {
    let mut report = Report::new("Steering");
    for line in &outcome.headlines {
        report = report.headline(line.as_str());
    }
    report = report
        .section("Six executors under the papers' mixes", "Latency against load, in dilated time.");
    for case in options.mixes.cases.iter().filter(|case| !case.has_users()) {
        let plot = plot(*case, &outcome.rows);
        if plot.series.iter().any(|series| series.points.len() > 1) {
            report = report.plot(plot);
        }
    }
    let decisions = results.with_metrics(&["decision_ns"]);
    if !decisions.rows.is_empty() {
        report =
            report.bars(BarChart::of(&decisions, "decision_ns", "A decision, the select included"));
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

fn plot(case: Case, rows: &[Row]) -> LinePlot {
    let prefix = format!("{}-", case.name());
    let mut series: Vec<Series> = Vec::new();
    for row in rows.iter().filter(|r| r.metric == "get_p99_ns" && r.case.starts_with(&prefix)) {
        let at = series.iter().position(|s| s.name == row.system).unwrap_or_else(|| {
            series.push(Series { name: row.system.clone(), points: Vec::new(), emphasis: false });
            series.len() - 1
        });
        series[at].points.push(Point {
            x: row.load.unwrap_or_default(),
            y: row.value,
            min: row.min,
            max: row.max,
            valid: row.valid,
            note: row.note.clone(),
        });
    }
    LinePlot {
        title: format!("GET p99, {}", case.name()),
        x: Axis { label: "offered load".into(), unit: "1/s".into() },
        y: Axis { label: "GET p99 (dilated)".into(), unit: "ns".into() },
        series,
        caption: String::new(),
    }
}
