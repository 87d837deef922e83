//! Tables for the terminal.

use heddle_metrics::{Cell, Collector, Mark, Results, Run, Table, TextStyle, tables};
use proptest::prelude::*;

prop_compose! {
    fn table()(title in "[a-z]{0,8}", rows in prop::collection::vec(
        (".{0,12}", "[0-9.]{1,9}", 0..3usize), 1..8)) -> Table {
        let mut table = Table::new(title, ["system", "value", "last"]);
        for (name, number, mark) in rows {
            let mark = [Mark::Plain, Mark::Best, Mark::Invalid][mark];
            table.push(vec![Cell::text(name), Cell::number(number).marked(mark), Cell::number("1")]);
        }
        table
    }
}

proptest! {
    /// All lines of the body have the same width: the last column ends where its head does.
    #[test]
    fn columns_are_aligned(table in table()) {
        let text = table.to_text(TextStyle::PLAIN);
        let skip = usize::from(!table.title.is_empty());
        let lines: Vec<&str> = text.split('\n').skip(skip).take(table.rows.len() + 1).collect();
        let width = lines[0].chars().count();
        for line in lines {
            prop_assert_eq!(line.chars().count(), width, "{:?}", line);
        }
    }

    /// I5, and colour changes nothing but colour.
    #[test]
    fn colour_only_paints(table in table()) {
        let painted = table.to_text(TextStyle { colour: true });
        let plain: String = strip(&painted);
        prop_assert_eq!(plain, table.to_text(TextStyle::PLAIN));
    }
}

fn strip(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        out.push_str(before);
        rest = after.split_once('m').map_or("", |(_, tail)| tail);
    }
    out + rest
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let mut table = Table::new("t\x1b[2J", ["a\r"]);
    table.push(vec![Cell::text("x\x1b]0;owned\x07\ny")]);
    let text = table.to_text(TextStyle::PLAIN);
    assert!(!text.contains('\x1b') && !text.contains('\r') && !text.contains('\x07'));
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn the_best_and_the_invalid_cells_of_a_column_are_marked() {
    let mut collect = Collector::new();
    for (system, case, value) in
        [("heddle", "yield", 24.1), ("tokio", "yield", 96.0), ("heddle", "condvar", 52.9)]
    {
        collect.add(system, case, "cpu_ns_per_op", "ns", Run::ok(value));
    }
    collect.add("tokio", "condvar", "cpu_ns_per_op", "ns", Run::invalid(1.0, "stolen time"));
    let text: String = tables(&Results::here(collect.into_rows()))
        .iter()
        .map(|t| t.to_text(TextStyle::PLAIN))
        .collect();
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[1], ["system", "yield", "condvar"]);
    assert_eq!(
        lines[2],
        ["heddle", "24.1", "ns*", "52.9", "ns"],
        "alone among the valid is not best"
    );
    assert_eq!(lines[3], ["tokio", "96.0", "ns", "1.00", "ns!"]);
    assert!(text.contains("tokio condvar: 1 of 1 runs invalid (stolen time)"));
}

#[test]
fn the_best_is_marked_within_each_load() {
    let mut collect = Collector::new();
    for (load, heddle, tokio) in [(2e4, 40e3, 30e3), (1e4, 20e3, 900e3)] {
        collect.at_load(load).add("heddle", "get", "p99", "ns", Run::ok(heddle));
        collect.at_load(load).add("tokio", "get", "p99", "ns", Run::ok(tokio));
    }
    let all = tables(&Results::here(collect.into_rows()));
    assert_eq!(all.len(), 1);
    let marks: Vec<(&str, &str, Mark)> =
        all[0].rows.iter().map(|r| (r[0].text.as_str(), r[1].text.as_str(), r[2].mark)).collect();
    assert_eq!(
        marks,
        [
            ("10.0 k/s", "heddle", Mark::Best),
            ("", "tokio", Mark::Plain),
            ("20.0 k/s", "heddle", Mark::Plain),
            ("", "tokio", Mark::Best),
        ]
    );
}

#[test]
fn a_note_shared_by_several_loads_appears_once() {
    let mut collect = Collector::new();
    for (load, metric) in [(1e4, "p50"), (1e4, "p99"), (2e4, "p50"), (2e4, "p99")] {
        collect.at_load(load).add("heddle", "get", metric, "ns", Run::invalid(1.0, "late"));
    }
    let all = tables(&Results::here(collect.into_rows()));
    assert_eq!(all[0].notes, ["heddle get at 10.0 k/s, 20.0 k/s: 1 of 1 runs invalid (late)"]);
}
