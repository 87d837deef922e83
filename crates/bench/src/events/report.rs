//! The bench as an HTML report.

use super::part::Part;
use super::{memcached, web};
use crate::suite::Outcome;
use heddle_metrics::{BarChart, LinePlot, Report, Results};

/// The cost of an event, tails over load, throughput, all tables.
pub(super) fn report(
    conditions: Vec<String>,
    outcome: &Outcome<Part>,
    results: &Results,
) -> Report {
    let head = (
        "Events",
        "One event queue against the ways in which threads share epoll",
        "Targets above; figures and tables below.",
    );
    outcome.report(head, |report| figures(results, report), conditions, results)
}

fn figures(results: &Results, mut report: Report) -> Report {
    let bars = [
        ("cycles_per_event", "What an event costs, with nothing to do"),
        ("throughput", "Saturated throughput"),
        ("probe_p99_ns", "p99 of a client beside full load"),
    ];
    for (metric, title) in bars {
        let rows = results.with_metrics(&[metric]);
        let plain = rows.rows.iter().filter(|row| row.load.is_none()).cloned().collect();
        let rows = Results { rows: plain, ..rows };
        if !rows.rows.is_empty() {
            report = report.bars(BarChart::of(&rows, metric, title));
        }
    }
    for case in ["zippydb", "gis", "dilated"] {
        for (metric, what) in [("light_p99_ns", "p99"), ("light_p999_ns", "p99.9")] {
            let title = format!("{case}: {what} of light requests");
            report = curve(results, report, (case, metric), &title);
        }
    }
    for case in [memcached::CASE, web::CASE] {
        report = curve(results, report, (case, "p99_ns"), &format!("{case}: p99"));
    }
    report
}

/// Adds a metric over the load, if there are points.
fn curve(results: &Results, report: Report, (case, metric): (&str, &str), title: &str) -> Report {
    let plot = LinePlot::over_load(results, case, metric, title);
    let has_points = plot.series.iter().any(|series| !series.points.is_empty());
    if has_points { report.plot(plot) } else { report }
}
