//! Tables, and the bench as an HTML report.

use super::part::Part;
use super::{compute, micro, schbench, server};
use crate::suite::Outcome;
use heddle_metrics::{BarChart, Report, Results, Row, Table};

/// Tables of a part's rows.
pub(super) fn tables(part: Part, rows: &[Row]) -> Vec<Table> {
    let shown: &[&str] = match part {
        Part::Micro => &[micro::COST],
        Part::Schbench => &[
            "wakeup_p50_ns",
            schbench::WAKEUP,
            "wakeup_p999_ns",
            "request_p50_ns",
            "request_p99_ns",
            "requests_per_s",
            schbench::GAIN,
            schbench::KEPT,
        ],
        Part::Compute => &["jobs_per_s", compute::KEPT],
        Part::Server => {
            &["p50", "p99", "p99.9", "achieved", "late_percent", server::GAIN, server::OVER_NICE]
        }
    };
    heddle_metrics::tables(&Results::here(rows.to_vec()).with_metrics(shown))
}

/// Bars of each part, and all tables.
pub(super) fn report(
    conditions: Vec<String>,
    outcome: &Outcome<Part>,
    results: &Results,
) -> Report {
    let head = (
        "POSIX",
        "Unmodified C programs, as kernel threads and under heddle run",
        "Targets above; figures and tables below.",
    );
    outcome.report(head, |report| figures(results, report), conditions, results)
}

fn figures(results: &Results, mut report: Report) -> Report {
    let bars = [
        (micro::COST, "CPU time of an operation"),
        (schbench::WAKEUP, "p99 of wake-ups"),
        ("requests_per_s", "schbench: requests per second"),
        ("jobs_per_s", "Jobs per second"),
    ];
    for (metric, title) in bars {
        let of = results.with_metrics(&[metric]);
        if !of.rows.is_empty() {
            report = report.bars(BarChart::of(&of, metric, title));
        }
    }
    let load = results.rows.iter().find(|row| row.case == server::SHORT).and_then(|row| row.load);
    let Some(load) = load else { return report };
    let panels = [
        (server::SHORT, "p99.9", "p99.9 of short requests"),
        (server::SHORT, "p99", "p99 of short requests"),
        (server::LONG, "p50", "p50 of long requests: what they pay"),
    ];
    report.bars(BarChart::at_load(results, load, &panels, "The server at half its capacity"))
}
