//! One run as a page, and the common end of all pages.

use super::{rows, summary, words};
use crate::{Outcome, PartOutcome, Scenario};
use heddle_core::Ns;
use heddle_metrics::{Axis, Cell, LinePlot, Point, Report, Results, Series, Table};

/// One run.
pub fn run_report(name: &str, scenario: &Scenario, outcome: &Outcome) -> (Report, Results) {
    let results = Results::here(rows(scenario, outcome));
    let table = summary(name, scenario, outcome);
    let report =
        Report::new(format!("{name}: {} on {} CPUs", scenario.policy, scenario.machine.cpus))
            .section("Response times", words::conditions(scenario))
            .plot(distribution(outcome))
            .table(table);
    (report_end(report, scenario, &[], &results), results)
}

/// Plots the share of each part's requests that took longer than a time, over the time.
fn distribution(outcome: &Outcome) -> LinePlot {
    let point = |x: f64, time: Ns| Point {
        x,
        y: time.0 as f64,
        min: time.0 as f64,
        max: time.0 as f64,
        valid: outcome.unstable.is_none(),
        note: String::new(),
    };
    let curve = |part: &PartOutcome| Series {
        name: part.name.clone(),
        points: STEPS
            .iter()
            .map(|&percent| point(percent, part.response.percentile(percent)))
            .collect(),
        emphasis: false,
    };
    LinePlot {
        title: "Response time by percentile".into(),
        x: Axis {
            label: "share of the requests that took at most so long".into(),
            unit: "%".into(),
        },
        y: Axis { label: "response time".into(), unit: "ns".into() },
        series: super::rows::parts(outcome).map(curve).collect(),
        caption: String::new(),
    }
}

/// The points of percentile curves.
const STEPS: [f64; 16] =
    [0.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 97.0, 98.0, 99.0, 99.9];

/// Adds the scenario, without what was `varied`, and what must be known before a figure is quoted.
pub(super) fn report_end(
    report: Report,
    scenario: &Scenario,
    varied: &[&str],
    results: &Results,
) -> Report {
    let report = report
        .notes("Simulated by heddle-sim: the policy is the very code that the runtime runs, the machine is a model.")
        .notes("The machine named here is the one that simulated; it has no influence on the figures.");
    let mut table = Table::new("Scenario", ["key", "value", "meaning"]);
    for (key, value) in scenario.values().filter(|(key, _)| !varied.contains(&key.path)) {
        table.push([key.path, &value, key.meaning].map(Cell::text).into());
    }
    report.table(table).results(results.clone())
}
