//! The bench as an HTML report.

use heddle_metrics::{Axis, BarChart, LinePlot, Point, Report, Results, Row, Series};

use super::Part;
use super::mixes::Case;
use crate::suite::Outcome;

/// Latency against load, decisions, all tables.
pub(super) fn report(
    cases: &[Case],
    conditions: Vec<String>,
    outcome: &Outcome<Part>,
    results: &Results,
) -> Report {
    let head = (
        "Steering",
        "Six executors under the papers' mixes",
        "Latency against load, in dilated time.",
    );
    let figures = |report| figures(cases, outcome, results, report);
    outcome.report(head, figures, conditions, results)
}

fn figures(cases: &[Case], outcome: &Outcome<Part>, results: &Results, report: Report) -> Report {
    let cases = cases.iter().filter(|case| !case.has_users());
    let plots = cases.map(|case| plot(*case, &outcome.rows));
    let curves = plots.filter(|plot| plot.series.iter().any(|series| series.points.len() > 1));
    let report = curves.fold(report, Report::plot);
    let decisions = results.with_metrics(&["decision_ns"]);
    if decisions.rows.is_empty() {
        return report;
    }
    report.bars(BarChart::of(&decisions, "decision_ns", "A decision, the select included"))
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
