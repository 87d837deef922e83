//! The mixes as tables, one row per system.

use heddle_metrics::{Cell, Mark, Row, Table, human};

use super::options::{MixOptions, Point};

/// A table for each mix and load, in measuring order.
#[must_use]
pub fn tables(options: &MixOptions, rows: &[Row]) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for point in options.points() {
        if !names.contains(&point.name()) {
            tables.push(table(options, &point, rows));
            names.push(point.name());
        }
    }
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn columns(point: &Point) -> (&'static [&'static str], &'static [&'static str]) {
    if point.case.has_users() {
        let head = &["system", "LS p99", "LS served", "LS dropped", "BE served", "BE dropped"];
        let metrics = &[
            "ls_p99_ns",
            "ls_throughput",
            "ls_dropped_share",
            "be_throughput",
            "be_dropped_share",
        ];
        return (head, metrics);
    }
    let head =
        &["system", "GET p50", "GET p99", "rounds", "undilated", "vs hash", "SCAN p50", "dropped"];
    (
        head,
        &[
            "get_p50_ns",
            "get_p99_ns",
            "",
            "/get_p99_ns",
            "get_p99_gain",
            "scan_p50_ns",
            "dropped_share",
        ],
    )
}

fn table(options: &MixOptions, point: &Point, rows: &[Row]) -> Table {
    let (head, metrics) = columns(point);
    let rate = options.dilation.capacity(&point.case.mix()) * point.fraction;
    let share = point.fraction * 100.0;
    let title = format!(
        "{}: {} offered, {share:.0} % of the computed capacity",
        point.name(),
        human(rate, "1/s")
    );
    let mut table = Table::new(title, head.iter().copied());
    let mut systems: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.case == point.name()) {
        if !systems.contains(&row.system.as_str()) {
            systems.push(&row.system);
        }
    }
    for system in systems {
        let find = |metric: &str| {
            rows.iter().find(|r| r.case == point.name() && r.system == system && r.metric == metric)
        };
        let cells = metrics.iter().map(|metric| match *metric {
            "" => find("get_p99_ns").map_or_else(Cell::default, spread),
            _ => match metric.strip_prefix('/') {
                Some(metric) => cell(find(metric), 1.0 / f64::from(options.dilation.0)),
                None => cell(find(metric), 1.0),
            },
        });
        table.push([Cell::text(system)].into_iter().chain(cells).collect());
    }
    table
}

fn cell(row: Option<&Row>, scale: f64) -> Cell {
    let Some(row) = row else { return Cell::number("-") };
    let cell = Cell::number(human(row.value * scale, &row.unit));
    if row.valid { cell } else { cell.marked(Mark::Invalid) }
}

fn spread(row: &Row) -> Cell {
    Cell::number(format!("{}..{}", human(row.min, &row.unit), human(row.max, &row.unit)))
}
