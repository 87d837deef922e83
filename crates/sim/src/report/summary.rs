//! A run on a terminal.

use super::rows::parts;
use super::words;
use crate::{Estimate, Outcome, PartOutcome, Scenario};
use heddle_metrics::{Cell, Mark, Table, human};

/// Returns a run as a table: the parts of the mix with their results, followed by their uncertainty and
/// where the time went.
pub fn summary(name: &str, scenario: &Scenario, outcome: &Outcome) -> Table {
    let head = ["", "requests", "p50", "p99", "p99.9", "slowdown p50", "p99", "p99.9"];
    let mut table = Table::new(format!("{name}: {}", scenario.policy), head);
    table.rows = parts(outcome).map(|part| line(part, outcome.unstable.is_some())).collect();
    table.notes = vec![
        words::conditions(scenario),
        format!(
            "95 % intervals of all: p99 {}, p99.9 {}, slowdown p99.9 {}",
            plus_minus(outcome.p99, "ns"),
            plus_minus(outcome.p999, "ns"),
            plus_minus(outcome.slowdown_p999, "x")
        ),
        format!("CPU time: {}", words::shares(outcome)),
        format!("a request: {}", words::counts(outcome)),
    ];
    table.notes.extend(outcome.unstable.map(|why| format!("NOT TO BE QUOTED: {why}")));
    table
}

/// Returns several policies as a table: a line for each, with the p99.9 slowdown at each load.
pub fn curves_table(name: &str, scenarios: &[Scenario], outcomes: &[Vec<Outcome>]) -> Table {
    let loads =
        scenarios.iter().zip(outcomes).map(|(s, curve)| curve.iter().map(|o| load(s, o)).collect());
    // All curves have the same loads, as far as they extend.
    let loads: Vec<String> = loads.max_by_key(Vec::len).unwrap_or_default();
    let mut table = Table::new(
        format!("{name}: p99.9 slowdown at each load"),
        [String::from("policy")].into_iter().chain(loads),
    );
    for (scenario, curve) in scenarios.iter().zip(outcomes) {
        let cells = curve.iter().map(|outcome| {
            let cell = Cell::number(human(outcome.slowdown_p999.value, ""));
            if outcome.unstable.is_some() { cell.marked(Mark::Invalid) } else { cell }
        });
        table.push([Cell::text(&scenario.policy)].into_iter().chain(cells).collect());
    }
    table.notes = scenarios.first().map(words::setting).into_iter().collect();
    table
}

fn load(scenario: &Scenario, outcome: &Outcome) -> String {
    format!("{:.0} %", outcome.offered / scenario.capacity() * 100.0)
}

fn line(part: &PartOutcome, unstable: bool) -> Vec<Cell> {
    let mark = |cell: Cell| if unstable { cell.marked(Mark::Invalid) } else { cell };
    let number = |text: String| mark(Cell::number(text));
    let response = |percent: f64| number(words::time(part.response.percentile(percent)));
    let slowdown = |percent: f64| number(human(part.slowdown.percentile(percent), "x"));
    vec![
        Cell::text(&part.name),
        Cell::number(part.response.count().to_string()),
        response(50.0),
        response(99.0),
        response(99.9),
        slowdown(50.0),
        slowdown(99.0),
        slowdown(99.9),
    ]
}

fn plus_minus(Estimate { value, half_width }: Estimate, unit: &str) -> String {
    match half_width.is_finite() {
        true => format!("{} ± {}", human(value, unit), human(half_width, unit)),
        false => format!("{} (too few requests for an interval)", human(value, unit)),
    }
}
