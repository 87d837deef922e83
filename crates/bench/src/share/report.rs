//! Tables, and the bench as an HTML report.

use super::colocated::part_case;
use super::colocated::{BE_SHARE, BUSY, LONGEST, OF_LEFT, OVER_ALONE, OVER_SHARE, STEPS, WAIT};
use super::part::Part;
use super::switch::{self, BROKEN, BROKEN_SHARE, OF_FUTEX, SWITCH};
use super::system::System;
use super::wake;
use crate::suite::Outcome;
use heddle_metrics::{BarChart, LinePlot, Report, Results, Row, Table};

/// The tables of a part's rows.
pub(super) fn tables(part: Part, rows: &[Row]) -> Vec<Table> {
    let shown: &[&str] = match part {
        Part::Switch => &[SWITCH, OF_FUTEX, BROKEN, BROKEN_SHARE],
        Part::Service | Part::Memcached | Part::RocksDb => {
            &["p50", "p99", "p99.9", OVER_ALONE, OVER_SHARE, BE_SHARE, OF_LEFT, BUSY, WAIT, LONGEST]
        }
        Part::Wake => &[
            "p50",
            "p99",
            "p99.9",
            "max",
            wake::OVER_ALONE,
            WAIT,
            wake::WAIT_P50,
            wake::WAIT_P99,
            LONGEST,
        ],
    };
    let rows = rows.iter().filter(|row| row.system != "calibration").cloned().collect();
    let mut tables = heddle_metrics::tables(&Results::here(rows).with_metrics(shown));
    if let (Part::Switch, Some(table)) = (part, tables.first_mut()) {
        table.notes.push(switch::PUBLISHED.into());
    }
    tables
}

/// Switches, tails and the batch program's share over load, wake-ups, all tables.
pub(super) fn report(
    conditions: Vec<String>,
    outcome: &Outcome<Part>,
    results: &Results,
) -> Report {
    let head = (
        "Shared CPUs",
        "Applications that share a CPU",
        "Targets above; figures and tables below.",
    );
    outcome.report(head, |report| figures(results, report), conditions, results)
}

fn figures(results: &Results, mut report: Report) -> Report {
    let switches = BarChart::of(results, SWITCH, title(Part::Switch));
    if !switches.panels.is_empty() {
        report = report.bars(switches.caption(switch::PUBLISHED));
    }
    for part in [Part::Service, Part::Memcached, Part::RocksDb] {
        report = over_load(part, results, report);
    }
    let here =
        |row: &&Row| row.case == wake::CASE && ["p50", "p99", "p99.9"].contains(&&*row.metric);
    let named = |row: &Row| Row {
        case: format!("late, {}", row.metric),
        metric: "late".into(),
        ..row.clone()
    };
    let rows = results.rows.iter().filter(here).map(named).collect();
    let wakes = BarChart::of(&Results { rows, ..results.clone() }, "late", title(Part::Wake));
    if wakes.panels.is_empty() { report } else { report.bars(wakes) }
}

fn title(part: Part) -> &'static str {
    match part {
        Part::Switch => "A switch between two applications, one way",
        Part::Service => "A server beside a batch program on one CPU",
        Part::Memcached => "Memcached beside a batch program on one CPU",
        Part::RocksDb => "RocksDB beside a batch program on one CPU",
        Part::Wake => "Lateness of wake-ups beside a batch program",
    }
}

fn over_load(part: Part, results: &Results, mut report: Report) -> Report {
    let case = part_case(part);
    let mut loads: Vec<f64> =
        results.rows.iter().filter(|row| row.case == case).filter_map(|row| row.load).collect();
    loads.dedup();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let curves = [
        ("p99", "the server's p99"),
        (BE_SHARE, "the batch program's throughput, of what it has alone"),
    ];
    if loads.len() > 1 {
        for (metric, what) in curves {
            let plot =
                LinePlot::over_load(results, case, metric, &format!("{}: {what}", title(part)));
            report = report.plot(plot.emphasise(System::Share.name()));
        }
    } else if let [load] = loads[..] {
        let panels = [
            (case, "p99", "p99"),
            (case, "p50", "p50"),
            (case, STEPS, "steps of the batch program per second"),
        ];
        report = report.bars(BarChart::at_load(results, load, &panels, title(part)));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_metrics::{Run, TextStyle};

    fn row(system: System, case: &str, metric: &str, load: Option<f64>) -> Row {
        let row = Row::from_runs(system.name(), case, metric, "ns", &[Run::ok(1.0)]);
        Row { load, ..row }
    }

    #[test]
    fn the_table_of_switches_quotes_what_was_published() {
        let rows = [row(System::ShareYield, switch::CASE, SWITCH, None)];
        let tables = tables(Part::Switch, &rows);
        let text = tables[0].to_text(TextStyle::PLAIN);
        assert!(text.contains("1,905 ns"), "{text}");
    }

    #[test]
    fn several_loads_are_curves_and_one_is_bars() {
        let html = |loads: &[f64]| {
            let of = |&load: &f64| {
                ["p99", BE_SHARE].map(|metric| row(System::Share, "service", metric, Some(load)))
            };
            let rows: Vec<Row> = loads.iter().flat_map(of).collect();
            let outcome = Outcome { rows: rows.clone(), ..Outcome::default() };
            report(vec!["quiet".into()], &outcome, &Results::here(rows)).to_html()
        };
        assert!(html(&[1.0, 2.0]).contains("of what it has alone"));
        assert!(!html(&[1.0]).contains("of what it has alone"));
    }
}
