//! The bench as an HTML report.

use super::part::Part;
use super::rows::{COST, TAIL};
use super::system::System;
use crate::suite::{Outcome, Part as _};
use heddle_metrics::{Axis, BarChart, LinePlot, Point, Report, Results, Row, Series, human};

/// Tails over load and by percentile, CPU costs, and all tables.
pub(super) fn report(
    systems: &[System],
    conditions: Vec<String>,
    outcome: &Outcome<Part>,
    results: &Results,
) -> Report {
    let head = (
        "Go",
        "BadgerDB and small programs, on the stock Go runtime and with Heddle's scheduler in it",
        "Targets above; figures and tables below.",
    );
    outcome.report(head, |report| figures(systems, results, report), conditions, results)
}

fn figures(systems: &[System], results: &Results, mut report: Report) -> Report {
    let chief = System::chief(systems).map_or(String::new(), |system| system.to_string());
    for case in [Part::BadgerUdp, Part::BadgerHttp].map(Part::name) {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.case == case).collect();
        let loads = loads(&rows);
        for &load in &loads {
            report = report.plot(tail(case, load, &rows).emphasise(&chief));
        }
        let over = [
            ("short_p99_ns", "p99 of short requests"),
            ("long_p99_ns", "p99 of long requests: what they pay"),
        ];
        for (metric, what) in over.into_iter().filter(|_| loads.len() > 1) {
            let plot = LinePlot::over_load(results, case, metric, &format!("{case}: {what}"));
            report = report.plot(plot.emphasise(&chief));
        }
    }
    let costs = results.with_metrics(&[COST]);
    if costs.rows.is_empty() {
        return report;
    }
    report.bars(BarChart::of(&costs, COST, "CPU time above the stock runtime's, small programs"))
}

fn loads(rows: &[&Row]) -> Vec<f64> {
    let mut loads: Vec<f64> = rows.iter().filter_map(|row| row.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    loads
}

/// Short requests by percentile, one curve per system.
fn tail(case: &str, load: f64, rows: &[&Row]) -> LinePlot {
    let here: Vec<&Row> = rows.iter().filter(|row| row.load == Some(load)).copied().collect();
    let mut names: Vec<&str> = Vec::new();
    for row in &here {
        if !names.contains(&row.system.as_str()) {
            names.push(&row.system);
        }
    }
    let curve = |name: &str| {
        let at = |metric: &str| here.iter().find(|row| row.system == name && row.metric == metric);
        let points = TAIL.iter().filter_map(|&(percent, metric)| Some(point(percent, at(metric)?)));
        Series { name: name.into(), points: points.collect(), emphasis: false }
    };
    LinePlot {
        title: format!("{case}: short requests by percentile, at {}", human(load, "1/s")),
        x: Axis {
            label: "share of the requests that took at most so long".into(),
            unit: "%".into(),
        },
        y: Axis { label: "latency".into(), unit: "ns".into() },
        series: names.into_iter().map(curve).collect(),
        caption: String::new(),
    }
}

fn point(x: f64, row: &Row) -> Point {
    let Row { value, min, max, valid, note, .. } = row;
    Point { x, y: *value, min: *min, max: *max, valid: *valid, note: note.clone() }
}
