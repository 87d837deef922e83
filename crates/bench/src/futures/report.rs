//! Tables, and the bench as an HTML report.

use super::micro::{BESIDE, BYTES, CPU, DROP, SPAWN, TOTAL};
use super::options::{AsyncOptions, HALF};
use super::part::Part;
use super::service::{self, KEPT, OVER_EIGHT, OVER_TOKIO, P50, THROUGHPUT, long, short};
use super::system::System;
use super::workload::Workload;
use crate::suite::{Outcome, Part as _};
use heddle_metrics::{BarChart, LinePlot, Report, Results, Row, Table};

/// The tables of a part's rows.
pub(super) fn tables(part: Part, rows: &[Row]) -> Vec<Table> {
    let of = |case: Option<String>, metrics: &[&str]| {
        let wanted = |row: &&Row| case.as_ref().is_none_or(|case| row.case == *case);
        let rows = rows.iter().filter(wanted).cloned().collect();
        heddle_metrics::tables(&Results::here(rows).with_metrics(metrics))
    };
    let latencies = ["p50", "p99", "p99.9", service::CPU, OVER_TOKIO, OVER_EIGHT];
    let mut tables = match part {
        Part::Micro => of(None, &[CPU]),
        Part::Memory => of(None, &[BYTES, BESIDE, TOTAL, SPAWN, DROP]),
        Part::Saturation => of(None, &[THROUGHPUT, service::CPU, KEPT]),
        Part::Blocking => of(Some(short(part)), &[&latencies[..], &[P50]].concat()),
        Part::OneMs | Part::TenMs | Part::Mutex => of(Some(short(part)), &latencies),
    };
    if let [table] = &mut tables[..]
        && part == Part::Micro
    {
        table.title = "CPU time per operation, one worker".into();
    }
    if Workload::of(part).is_some() {
        tables.extend(of(Some(long(part)), &["p50", "p99"]));
    }
    tables
}

/// Operations, tails over load and at half load, throughput, all tables.
pub(super) fn report(
    options: &AsyncOptions,
    conditions: Vec<String>,
    outcome: &Outcome<Part>,
    results: &Results,
) -> Report {
    let head = (
        "Async tasks",
        "Async tasks on Heddle, tokio and smol",
        "Targets above; figures and tables below.",
    );
    outcome.report(head, |report| figures(options, results, report), conditions, results)
}

fn figures(options: &AsyncOptions, results: &Results, mut report: Report) -> Report {
    let bars =
        [(CPU, "CPU time per operation"), (BYTES, "Memory of an idle task with 64 bytes of state")];
    for (metric, title) in bars {
        if results.rows.iter().any(|row| row.metric == metric) {
            report = report.bars(BarChart::of(results, metric, title));
        }
    }
    for &part in Part::ALL {
        let Some(workload) = Workload::of(part) else { continue };
        let (short, long) = (short(part), long(part));
        if part == Part::Saturation {
            let rows = results.rows.iter().filter(|row| row.case == short).cloned().collect();
            let chart = BarChart::of(&Results { rows, ..results.clone() }, THROUGHPUT, title(part));
            if !chart.panels.is_empty() {
                report = report.bars(chart);
            }
            continue;
        }
        let panels = [
            (&*short, "p50", "short, p50"),
            (&*short, "p99", "short, p99"),
            (&*short, "p99.9", "short, p99.9"),
            (&*long, "p50", "long, p50"),
        ];
        let rate = workload.capacity() * HALF;
        let chart = BarChart::at_load(results, rate, &panels, title(part));
        if !chart.panels.is_empty() {
            report = report.bars(chart.caption("Response times at half load."));
        }
        if options.loads(part).len() > 1 {
            let of = format!("{}: p99 of short ones", title(part));
            let plot = LinePlot::over_load(results, &short, "p99", &of);
            if plot.series.iter().any(|series| !series.points.is_empty()) {
                report = report.plot(plot.emphasise(System::CHIEF.name()));
            }
        }
    }
    report
}

fn title(part: Part) -> &'static str {
    match part {
        Part::Micro => "Operations",
        Part::Memory => "Idle tasks",
        Part::OneMs => "Requests of 5 us, 1 % of 1 ms",
        Part::TenMs => "Requests of 50 us, 1 % of 10 ms",
        Part::Blocking => "Requests of 50 us; 1 % sleep in the kernel for 10 ms",
        Part::Mutex => "Requests of 5 us, 1 % of 1 ms, that share a mutex",
        Part::Saturation => "Throughput of requests of 5 us",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_metrics::Run;

    #[test]
    fn short_and_long_requests_have_tables_with_their_own_columns() {
        let row = |case: String, metric| {
            let row = Row::from_runs("tokio", &case, metric, "ns", &[Run::ok(1.0)]);
            row.with_load(5.0)
        };
        let part = Part::OneMs;
        let rows = ["p50", "p90", "p99.9"]
            .map(|metric| [row(short(part), metric), row(long(part), metric)]);
        let texts: Vec<String> = tables(part, &rows.concat())
            .iter()
            .map(|table| table.to_text(heddle_metrics::TextStyle::PLAIN))
            .collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(texts[0].contains("p99.9") && !texts[0].contains("p90"), "{}", texts[0]);
        assert!(texts[1].contains("p50") && !texts[1].contains("p99.9"), "{}", texts[1]);
    }
}
