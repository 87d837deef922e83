//! The results of a sweep, as rows, a table and a page.

use super::page::report_end;
use crate::Scenario;
use crate::sweep::{COARSE, Capacity, PolicySweep, Slo, TOLERANCE, with_quantum};
use heddle_metrics::{
    Bar, BarChart, Better, Cell, Mark, Panel, Report, Results, Row, Run, Table, human,
};

/// A policy's text and its capacity.
type Line<'a> = (String, &'a Capacity);

/// Returns each policy as written and, if different, with its best quantum.
fn lines(found: &[PolicySweep]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for line in found.iter().flat_map(policy_lines) {
        // Two policies may differ only in their quantum, and then have the same best one.
        if lines.iter().all(|(policy, _)| *policy != line.0) {
            lines.push(line);
        }
    }
    lines
}

fn policy_lines(found: &PolicySweep) -> Vec<Line<'_>> {
    let best = found
        .best
        .iter()
        .filter_map(|(quantum, capacity)| Some((with_quantum(&found.policy, *quantum)?, capacity)));
    let best = best.filter(|(policy, _)| *policy != found.policy);
    [(found.policy.clone(), &found.written)].into_iter().chain(best).collect()
}

/// Returns the rows of a sweep: `capacity` (%) and `capacity_rate` (1/s), with the objective as the
/// case; min and max are the loads between which the bisection ended. If no load keeps the objective,
/// the row is 0 and valid: it is a finding.
pub fn sweep_rows(slo: &Slo, found: &[PolicySweep]) -> Vec<Row> {
    let row = |(policy, capacity): &Line<'_>, metric, unit, value: f64| {
        let row = Row::from_runs(policy, &slo.to_string(), metric, unit, &[Run::ok(value)]);
        let end = if capacity.load > 0.0 {
            value / capacity.load * (capacity.load + TOLERANCE)
        } else {
            value
        };
        Row { max: end, ..row }.with_better(Better::Higher)
    };
    let rows = |line: Line<'_>| {
        [
            row(&line, "capacity", "%", line.1.load * 100.0),
            row(&line, "capacity_rate", "1/s", line.1.rate),
        ]
    };
    lines(found).into_iter().flat_map(rows).collect()
}

/// Returns a line for each policy: its capacity as written, its best quantum, and its capacity with
/// that.
pub fn sweep_table(slo: &Slo, found: &[PolicySweep]) -> Table {
    let head = ["policy", "load", "rate", "best quantum", "load", "rate", "overhead"];
    let mut table = Table::new(format!("The highest load that keeps {slo}"), head);
    let most = found.iter().map(|f| best(f).load).fold(0.0, f64::max);
    table.rows = found.iter().map(|found| table_line(found, most)).collect();
    table.notes.push(format!(
        "loads in % of what the CPUs could do if scheduling cost nothing, to within {} %",
        TOLERANCE * 100.0
    ));
    table
}

fn best(found: &PolicySweep) -> &Capacity {
    found.best.as_ref().map_or(&found.written, |(_, capacity)| capacity)
}

fn table_line(found: &PolicySweep, most: f64) -> Vec<Cell> {
    let load = |capacity: &Capacity| match capacity.outcome {
        Some(_) => Cell::number(format!("{:.1} %", capacity.load * 100.0)),
        None => Cell::number("none"),
    };
    let rate = |capacity: &Capacity| Cell::number(human(capacity.rate, "1/s"));
    let mark = |cell: Cell| {
        if best(found).load == most && most > 0.0 { cell.marked(Mark::Best) } else { cell }
    };
    let overhead = best(found)
        .outcome
        .as_ref()
        .map_or(String::from("-"), |o| format!("{:.1} %", o.shares.overhead * 100.0));
    let quantum = found.best.as_ref().map_or(String::from("-"), |(quantum, _)| quantum.to_string());
    vec![
        Cell::text(&found.policy),
        load(&found.written),
        rate(&found.written),
        Cell::number(quantum),
        mark(load(best(found))),
        rate(best(found)),
        Cell::number(overhead),
    ]
}

/// Returns a sweep as a page: bars of each policy's capacity and, for each policy, of the capacity by
/// quantum.
pub fn sweep_report(
    name: &str,
    slo: &Slo,
    scenarios: &[Scenario],
    found: &[PolicySweep],
) -> (Report, Results) {
    let results = Results::here(sweep_rows(slo, found));
    let mut report = Report::new(format!("{name}: the highest load that keeps {slo}"))
        .section(
            "Policies",
            "As written, and with the quantum that allows most where a policy has one.",
        )
        .bars(policies(found))
        .table(sweep_table(slo, found));
    let panels: Vec<Panel> = found.iter().filter(|f| !f.tried.is_empty()).map(quanta).collect();
    if !panels.is_empty() {
        let chart =
            BarChart { title: "Highest load by quantum".into(), panels, caption: String::new() };
        report = report
            .section("Quanta", "Short quanta cost preemptions, long ones let short requests wait.")
            .bars(chart.caption(format!(
                "The best and its neighbours to within {} %, the others to within {} %.",
                TOLERANCE * 100.0,
                COARSE * 100.0
            )));
    }
    let report = match scenarios.first() {
        Some(scenario) => report_end(report, scenario, &["policy", scenario.load_key()], &results),
        None => report,
    };
    (report, results)
}

/// Returns the policies' capacities side by side, as written and with their best quantum.
fn policies(found: &[PolicySweep]) -> BarChart {
    let written = found.iter().map(|found| bar(short(&found.policy), &found.written));
    let best = found.iter().map(|found| match &found.best {
        Some((quantum, capacity)) => {
            let policy = with_quantum(&found.policy, *quantum);
            bar(short(policy.as_deref().unwrap_or(&found.policy)), capacity)
        }
        None => bar(short(&found.policy), &found.written),
    });
    BarChart {
        title: "Highest load, of the CPUs' time".into(),
        panels: vec![
            panel("as written", written.collect()),
            panel("with the best quantum", best.collect()),
        ],
        caption: String::new(),
    }
}

/// Shortens a policy's text to fit before a bar.
fn short(policy: &str) -> String {
    policy.replace(":quantum=", " ")
}

/// Returns a bar for each quantum of one policy.
fn quanta(found: &PolicySweep) -> Panel {
    let bars = found.tried.iter().map(|(quantum, capacity)| bar(quantum.to_string(), capacity));
    panel(&found.policy, bars.collect())
}

fn bar(system: String, capacity: &Capacity) -> Bar {
    let value = capacity.load * 100.0;
    Bar { system, value, min: value, max: value, valid: true, note: String::new() }
}

fn panel(case: &str, bars: Vec<Bar>) -> Panel {
    Panel { case: case.into(), unit: "%".into(), better: Better::Higher, bars, target: None }
}
