//! Tables, and the bench as an HTML report.

use super::compiler::Compiler;
use super::part::Part;
use super::setting::WATCHED;
use super::sources::CLOCK;
use super::variant::Variant;
use super::{gaps, kernels, preempt, programs, slowdown};
use crate::suite::Outcome;
use heddle_metrics::{BarChart, Cell, Mark, Report, Results, Row, Table, human};

/// A table of `rows`: a line for each `line`, a column for each of `columns`, in which `column` puts a row.
fn grid<'a>(
    title: &str,
    head: &str,
    columns: &[&str],
    rows: &[&'a Row],
    line: impl Fn(&'a Row) -> &'a str,
    column: impl Fn(&'a Row) -> &'a str,
) -> Table {
    let mut table = Table::new(title, [head].into_iter().chain(columns.iter().copied()));
    let mut lines: Vec<&str> = Vec::new();
    for row in rows {
        if !lines.contains(&line(row)) {
            lines.push(line(row));
        }
    }
    for name in lines {
        let of = |wanted: &&str| {
            let found = rows.iter().find(|row| line(row) == name && column(row) == *wanted);
            found.map_or_else(|| Cell::number("-"), |row| cell(row))
        };
        let cells = columns.iter().map(of);
        table.push(std::iter::once(Cell::text(name)).chain(cells).collect());
    }
    table.notes = notes(rows);
    table
}

fn cell(row: &Row) -> Cell {
    let mark = if row.valid { Mark::Plain } else { Mark::Invalid };
    Cell::number(human(row.value, &row.unit)).marked(mark)
}

/// The rows' notes, each once with the rows that it concerns.
fn notes(rows: &[&Row]) -> Vec<String> {
    let mut notes: Vec<(&str, Vec<String>)> = Vec::new();
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        let subject = format!("{} {}", row.system, row.case);
        let at = notes.iter().position(|(note, _)| *note == row.note).unwrap_or_else(|| {
            notes.push((&row.note, Vec::new()));
            notes.len() - 1
        });
        if !notes[at].1.contains(&subject) {
            notes[at].1.push(subject);
        }
    }
    notes.iter().map(|(note, subjects)| format!("{}: {note}", subjects.join(", "))).collect()
}

/// Tables of a part's rows.
pub(super) fn tables(part: Part, compilers: &[Compiler], rows: &[Row]) -> Vec<Table> {
    match part {
        Part::Kernels => of_kernels(compilers, rows),
        Part::Programs => of_programs(rows),
        Part::Gaps => of_gaps(compilers, rows),
        Part::Preempt => of_preempt(rows),
    }
}

/// A table for each compiler: kernels by variants.
fn of_kernels(compilers: &[Compiler], rows: &[Row]) -> Vec<Table> {
    let table = |compiler: &Compiler| {
        let prefix = format!("{}/", compiler.name);
        let of = |row: &&Row| row.system.starts_with(&prefix);
        let slowdowns: Vec<&Row> =
            rows.iter().filter(|row| row.metric == slowdown::SLOWDOWN).filter(of).collect();
        let title = format!("Slowdown without preemption, {} {}", compiler.name, compiler.version);
        let mut table = grid(
            &title,
            "kernel",
            &Variant::PROBED.map(Variant::name),
            &slowdowns,
            |row| &row.case,
            |row| row.system.split_once('/').map_or("", |(_, variant)| variant),
        );
        let shares = rows.iter().filter(|row| row.metric == kernels::OF_NAIVE).filter(of);
        let naive = Variant::NaiveFlag;
        table.notes.extend(shares.map(|row| {
            format!("{}'s mean is {} of {naive}'s", row.system, human(row.value, &row.unit))
        }));
        table
    };
    compilers.iter().map(table).filter(|table| !table.rows.is_empty()).collect()
}

/// Slowdowns and the growth of the code: programs by variants. A variant that no program has is no column.
fn of_programs(rows: &[Row]) -> Vec<Table> {
    let table = |metric: &str, title: &str| {
        let of = rows.iter().filter(|row| row.metric == metric && programs::is_of(row));
        let of: Vec<&Row> = of.collect();
        let has = |variant: &&Variant| of.iter().any(|row| row.system == variant.name());
        let columns: Vec<&str> =
            Variant::PROBED.iter().filter(has).map(|variant| variant.name()).collect();
        grid(title, "program", &columns, &of, |row| &row.case, |row| &row.system)
    };
    let tables = [
        table(slowdown::SLOWDOWN, "Slowdown of programs without preemption"),
        table(programs::GROWTH, "Growth of their machine code"),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// A table for each compiler: kernels by percentiles.
fn of_gaps(compilers: &[Compiler], rows: &[Row]) -> Vec<Table> {
    let columns: Vec<&str> = gaps::PERCENTILES
        .iter()
        .map(|(metric, _)| *metric)
        .chain([gaps::MAX, gaps::LOST])
        .collect();
    let table = |compiler: &Compiler| {
        let of: Vec<&Row> = rows.iter().filter(|row| row.system == compiler.name).collect();
        let title =
            format!("Time between two looks at the clock, {} {}", compiler.name, compiler.version);
        grid(&title, "kernel", &columns, &of, |row| &row.case, |row| &row.metric)
    };
    compilers.iter().map(table).filter(|table| !table.rows.is_empty()).collect()
}

/// Throughput and cost by quantum, then lateness.
fn of_preempt(rows: &[Row]) -> Vec<Table> {
    let of = |metric: &str, title: &str, columns: &[&str]| {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.metric == metric).collect();
        grid(title, "quantum", columns, &rows, |row| &row.case, |row| &row.system)
    };
    let both = &["signal", "probe"];
    let metrics: Vec<&str> = preempt::LATE
        .iter()
        .map(|(metric, _)| *metric)
        .chain([preempt::LATE_MAX, preempt::NET_P99, preempt::STOLEN])
        .collect();
    let late: Vec<&Row> = rows.iter().filter(|row| metrics.contains(&&*row.metric)).collect();
    let title = format!("Lateness of turns, quantum {}", WATCHED);
    let tables = [
        of(preempt::LOST, "Throughput lost by preemption", both),
        of(preempt::COST, "CPU time lost for each preemption", both),
        of(preempt::COUNT, "Preemptions of the work", both),
        grid(&title, "mechanism", &metrics, &late, |row| &row.system, |row| &row.metric),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// Bars of each part, and all tables.
pub(super) fn report(
    conditions: Vec<String>,
    outcome: &Outcome<Part>,
    results: &Results,
) -> Report {
    let head = (
        "Preemption probes",
        "What probes cost, how often they look at the clock, and how precisely they end turns",
        "Targets above; figures and tables below.",
    );
    outcome.report(head, |report| figures(results, report), conditions, results)
}

fn figures(results: &Results, report: Report) -> Report {
    let late = results.with_metrics(&[preempt::LATE_P99]);
    let lost = results.with_metrics(&[preempt::LOST]);
    let charts = [
        slowdown_chart(
            results,
            "kernels",
            |row| !programs::is_of(row),
            |_| slowdown::MOST_SLOWDOWN,
        ),
        slowdown_chart(results, "programs", programs::is_of, programs::most),
        gap_chart(results),
        BarChart::of(&lost, preempt::LOST, "Throughput lost by preemption"),
        BarChart::of(&late, preempt::LATE_P99, "p99 of the lateness of turns"),
    ];
    charts.into_iter().filter(|chart| !chart.panels.is_empty()).fold(report, Report::bars)
}

/// The bars of kernels or of programs; `most` is the target of a case.
fn slowdown_chart(
    results: &Results,
    of: &str,
    is_of: fn(&Row) -> bool,
    most: fn(&str) -> f64,
) -> BarChart {
    let slowdowns = results.with_metrics(&[slowdown::SLOWDOWN]);
    let rows = slowdowns.rows.iter().filter(|row| is_of(row)).cloned().collect();
    let mut chart = BarChart::of(
        &Results { rows, ..slowdowns },
        slowdown::SLOWDOWN,
        &format!("Slowdown of {of} without preemption"),
    );
    for panel in &mut chart.panels {
        panel.target = Some(most(&panel.case));
    }
    chart
}

/// A panel for each compiler, with a bar for each kernel.
fn gap_chart(results: &Results) -> BarChart {
    // What the chart calls systems are the kernels here.
    let turned =
        |row: &Row| Row { system: row.case.clone(), case: row.system.clone(), ..row.clone() };
    let of = results.with_metrics(&[gaps::OF_TARGET]);
    let rows = of.rows.iter().map(turned).collect();
    let mut chart = BarChart::of(
        &Results { rows, ..of.clone() },
        gaps::OF_TARGET,
        "p99.9 of the time between two looks at the clock",
    );
    for panel in &mut chart.panels {
        panel.target = Some(gaps::MOST.0 as f64);
    }
    let clock = CLOCK.name;
    chart.caption(format!(
        "{clock} is a loop that only looks at the clock: the machine's own share."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_metrics::{Run, TextStyle};

    #[test]
    fn a_grid_has_a_line_for_each_case_and_says_what_is_missing_or_invalid() {
        let row = |case: &str, system: &str, run| Row::from_runs(system, case, "m", "%", &[run]);
        let rows = [
            row("fib", "a", Run::ok(1.0)),
            row("fib", "b", Run::invalid(2.0, "late")),
            row("lu", "b", Run::ok(3.0)),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let table = grid("T", "kernel", &["a", "b"], &rows, |row| &row.case, |row| &row.system);
        let text = table.to_text(TextStyle::PLAIN);
        assert_eq!(table.rows.len(), 2, "{text}");
        assert!(text.contains("b fib: 1 of 1 runs invalid (late)"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("lu") && line.contains('-')), "{text}");
        assert_eq!(table.rows[0][2].mark, Mark::Invalid);
    }
}
