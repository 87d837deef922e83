//! Tables, and the bench as an HTML report.

use super::part::Part;
use super::{compute, first, mariadb, memcached, micro, schbench, server, tokio};
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
        Part::First => &[
            "wakeup_p50_ns",
            schbench::WAKEUP,
            "wakeup_p999_ns",
            first::RATE,
            schbench::GAIN,
            first::KEPT,
        ],
        Part::Server | Part::Tokio => {
            &["p50", "p99", "p99.9", "achieved", "late_percent", server::GAIN, server::OVER_NICE]
        }
        Part::Mariadb => &[
            "p50",
            "p99",
            "p99.9",
            "achieved",
            "late_percent",
            mariadb::GAIN,
            mariadb::OVER_NICE,
            mariadb::RATE,
            mariadb::KEPT,
        ],
        Part::Memcached => &[
            memcached::RATE,
            memcached::COST,
            memcached::KEPT,
            "p50",
            "p99",
            "p99.9",
            memcached::OF_KERNEL,
        ],
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
        "Unmodified programs, as kernel threads and under heddle run",
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
        (memcached::RATE, "memcached: GETs per second, closed loop"),
        (memcached::OF_KERNEL, "memcached: p99 of GETs over the kernel's, open loop"),
    ];
    for (metric, title) in bars {
        let of = results.with_metrics(&[metric]);
        if !of.rows.is_empty() {
            report = report.bars(BarChart::of(&of, metric, title));
        }
    }
    at_loads(results).into_iter().fold(report, Report::bars)
}

/// A panel of a figure: case, metric, title.
type Panel = (&'static str, &'static str, &'static str);

const SERVER: &[Panel] = &[
    (server::SHORT, "p99.9", "p99.9 of short requests"),
    (server::SHORT, "p99", "p99 of short requests"),
    (server::LONG, "p50", "p50 of long requests: what they pay"),
];

const TOKIO: &[Panel] = &[
    (tokio::SHORT, "p99.9", "p99.9 of short requests"),
    (tokio::SHORT, "p99", "p99 of short requests"),
    (tokio::LONG, "p50", "p50 of long requests: what they pay"),
];

const MARIADB: &[Panel] = &[
    (mariadb::SELECT, "p99.9", "p99.9 of selects"),
    (mariadb::SELECT, "p99", "p99 of selects"),
    (mariadb::SELECT, "p50", "p50 of selects"),
    (mariadb::AGGREGATE, mariadb::RATE, "aggregates per second: what they pay"),
];

/// The figures of servers: several metrics of one server at its load.
fn at_loads(results: &Results) -> Vec<BarChart> {
    let all = [
        ("The server at half its capacity", SERVER),
        ("MariaDB: point selects beside aggregates", MARIADB),
        ("A server on tokio with 8 workers at half its capacity", TOKIO),
    ];
    let chart = |(title, panels): (&str, &[Panel])| {
        let load = results.rows.iter().find(|row| row.case == panels[0].0)?.load?;
        Some(BarChart::at_load(results, load, panels, title))
    };
    all.into_iter().filter_map(chart).collect()
}
