//! Rows of results as tables to compare by eye.

use crate::{Better, Cell, Mark, Results, Row, Table, human};

/// Returns tables of all rows, with one line for each system: a column is read downwards and its best marked.
///
/// Rows without a load and with a single metric: one table with a column for each case. With several metrics: a
/// table for each case with a column for each metric. Rows with a load: a table for each case, sorted by load,
/// the best marked within each load. Notes follow the table that they concern.
pub fn tables(results: &Results) -> Vec<Table> {
    let (curves, plain): (Vec<&Row>, Vec<&Row>) =
        results.rows.iter().partition(|row| row.load.is_some());
    let mut tables = plain_tables(&plain);
    tables.extend(by_case(&curves).into_iter().map(|(case, rows)| curve_table(case, &rows)));
    tables
}

fn plain_tables(rows: &[&Row]) -> Vec<Table> {
    let metrics = distinct(rows, |row| &row.metric);
    match metrics[..] {
        [] => Vec::new(),
        [metric] => vec![pivot(metric, rows, |row| &row.case)],
        _ => by_case(rows)
            .into_iter()
            .map(|(case, rows)| pivot(case, &rows, |row| &row.metric))
            .collect(),
    }
}

/// One line for each system, one column for each value of `column`.
fn pivot<'a>(title: &str, rows: &[&'a Row], column: fn(&'a Row) -> &'a str) -> Table {
    let columns = distinct(rows, column);
    let mut table = Table::new(title, ["system"].into_iter().chain(columns.iter().copied()));
    for system in distinct(rows, |row| &row.system) {
        let cells = columns.iter().map(|&name| {
            let peers: Vec<&Row> = rows.iter().copied().filter(|r| column(r) == name).collect();
            peers
                .iter()
                .find(|r| r.system == system)
                .map_or_else(missing, |row| value_cell(row, &peers))
        });
        table.push(std::iter::once(Cell::text(system)).chain(cells).collect());
    }
    table.notes = notes(rows);
    table
}

fn curve_table(case: &str, rows: &[&Row]) -> Table {
    let metrics = distinct(rows, |row| &row.metric);
    let head = ["load", "system"].into_iter().chain(metrics.iter().copied());
    let mut table = Table::new(case, head);
    for load in loads(rows) {
        let here: Vec<&Row> = rows.iter().copied().filter(|row| row.load == Some(load)).collect();
        for (at, system) in distinct(&here, |row| &row.system).into_iter().enumerate() {
            // A load is named once, to make the groups visible.
            let name = if at == 0 { human(load, "1/s") } else { String::new() };
            let mut line = vec![Cell::number(name), Cell::text(system)];
            line.extend(metrics.iter().map(|&metric| {
                let peers: Vec<&Row> =
                    here.iter().copied().filter(|r| r.metric == metric).collect();
                peers
                    .iter()
                    .find(|r| r.system == system)
                    .map_or_else(missing, |row| value_cell(row, &peers))
            }));
            table.push(line);
        }
    }
    table.notes = notes(rows);
    table
}

fn missing() -> Cell {
    Cell::number("-")
}

fn value_cell(row: &Row, peers: &[&Row]) -> Cell {
    let mark = match row.valid {
        false => Mark::Invalid,
        true if is_best(row, peers) => Mark::Best,
        true => Mark::Plain,
    };
    Cell::number(human(row.value, &row.unit)).marked(mark)
}

/// Whether no valid peer is better, and there is one to be better than.
fn is_best(row: &Row, peers: &[&Row]) -> bool {
    let mut others =
        peers.iter().filter(|p| p.valid && p.unit == row.unit && p.system != row.system).peekable();
    others.peek().is_some()
        && others.all(|other| match row.better() {
            Better::Lower => row.value <= other.value,
            Better::Higher => row.value >= other.value,
        })
}

/// The rows' notes, each with the rows that it concerns; a note that several loads share appears once.
fn notes(rows: &[&Row]) -> Vec<String> {
    let mut lines: Vec<(String, &str, Vec<String>)> = Vec::new();
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        let who = format!("{} {}", row.system, row.case);
        let at = lines
            .iter()
            .position(|line| (&line.0, line.1) == (&who, &row.note))
            .unwrap_or_else(|| {
                lines.push((who, &row.note, Vec::new()));
                lines.len() - 1
            });
        let loads = &mut lines[at].2;
        let load = row.load.map(|load| human(load, "1/s"));
        let new = load.filter(|load| !loads.contains(load));
        loads.extend(new);
    }
    let at = |loads: &[String]| {
        if loads.is_empty() { String::new() } else { format!(" at {}", loads.join(", ")) }
    };
    lines.iter().map(|(who, note, loads)| format!("{who}{}: {note}", at(loads))).collect()
}

/// The rows of each case, in the order of first appearance.
pub(crate) fn by_case<'a>(rows: &[&'a Row]) -> Vec<(&'a str, Vec<&'a Row>)> {
    let cases = distinct(rows, |row| &row.case);
    cases
        .into_iter()
        .map(|case| (case, rows.iter().copied().filter(|row| row.case == case).collect()))
        .collect()
}

/// The distinct values of a field, in the order of first appearance.
pub(crate) fn distinct<'a>(rows: &[&'a Row], field: fn(&'a Row) -> &'a str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for name in rows.iter().map(|row| field(row)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The distinct loads, ascending.
fn loads(rows: &[&Row]) -> Vec<f64> {
    let mut loads: Vec<f64> = rows.iter().filter_map(|row| row.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    loads
}
