//! Several policies over the load, as a page.

use super::page::report_end;
use super::rows;
use crate::{Outcome, Scenario};
use heddle_metrics::{Axis, LinePlot, Report, Results, Row, human};

/// The curves of several policies over the load.
///
/// `outcomes` are those of each of `scenarios`, which differ in their policies, as
/// [`curves`](crate::sweep::curves) returns them.
pub fn curves_report(
    name: &str,
    scenarios: &[Scenario],
    outcomes: &[Vec<Outcome>],
) -> (Report, Results) {
    let runs =
        scenarios.iter().zip(outcomes).flat_map(|(s, curve)| curve.iter().map(move |o| (s, o)));
    let results =
        Results::here(runs.flat_map(|(scenario, outcome)| rows(scenario, outcome)).collect());
    let Some(first) = scenarios.first() else { return (Report::new(name), results) };
    let title = format!("{name}: {} on {} CPUs", counted(scenarios.len()), first.machine.cpus);
    let mut report = Report::new(title);
    if let Some(line) = headline(scenarios, outcomes) {
        report = report.headline(line);
    }
    let over = |case, metric, title: &str, axis| plot(&results, first, case, metric, title, axis);
    report = report
        .section(
            "Slowdown",
            "Response time over service time. One request in a thousand saw more than is shown.",
        )
        .plot(
            over("all", "slowdown_p99.9", "p99.9 slowdown against load", "p99.9 slowdown")
                .caption(INTERVAL),
        )
        .section(
            "Response times",
            format!("Requests: {}. Arrivals: {}.", first.mix, first.arrivals),
        );
    for part in parts(&results) {
        let plot = over(part, "p99", &format!("p99 of {part} against load"), "p99 response time");
        report = report.plot(if part == "all" { plot.caption(INTERVAL) } else { plot });
    }
    report = report
        .section(
            "Where the CPUs' time went",
            "The requests' own work is the same under every policy; scheduling comes on top.",
        )
        .plot(over(
            "all",
            "cpu_overhead",
            "CPU time spent on scheduling",
            "share of the CPUs' time",
        ));
    if first.batch > 0 {
        report = report.plot(over(
            "all",
            "cpu_batch",
            "CPU time left to batch work",
            "share of the CPUs' time",
        ));
    }
    (report_end(report, first, &["policy", first.load_key()], &results), results)
}

const INTERVAL: &str = "A band is the 95 % confidence interval of a run.";

fn counted(policies: usize) -> String {
    if policies == 1 { "1 policy".into() } else { format!("{policies} policies") }
}

/// Returns what the best and the worst policy saw at the highest load that all of them can take.
fn headline(scenarios: &[Scenario], outcomes: &[Vec<Outcome>]) -> Option<String> {
    let steady = |curve: &Vec<Outcome>| curve.iter().filter(|o| o.unstable.is_none()).count();
    let at = outcomes.iter().map(steady).min()?.checked_sub(1)?;
    let slowdown = |of: usize| outcomes[of][at].slowdown_p999.value;
    let order = |&a: &usize, &b: &usize| slowdown(a).total_cmp(&slowdown(b));
    let (best, worst) = ((0..outcomes.len()).min_by(order)?, (0..outcomes.len()).max_by(order)?);
    let load = outcomes[best][at].offered / scenarios[best].capacity() * 100.0;
    let said = |of: usize| format!("{} under {}", human(slowdown(of), ""), scenarios[of].policy);
    (best != worst).then(|| {
        format!("At {load:.0} % load the p99.9 slowdown is {}, and {}.", said(best), said(worst))
    })
}

/// Returns the cases that have a response time, `all` last.
fn parts(results: &Results) -> Vec<&str> {
    let mut cases: Vec<&str> = Vec::new();
    for Row { case, metric, .. } in &results.rows {
        if metric == "p99" && !cases.contains(&case.as_str()) {
            cases.push(case);
        }
    }
    cases
}

/// Returns a plot over the share of the CPUs' capacity.
fn plot(
    results: &Results,
    first: &Scenario,
    case: &str,
    metric: &str,
    title: &str,
    axis: &str,
) -> LinePlot {
    let mut plot = LinePlot::over_load(results, case, metric, title);
    plot.x = Axis { label: "offered load, of the CPUs' time".into(), unit: "%".into() };
    plot.y.label = axis.into();
    let points = plot.series.iter_mut().flat_map(|series| &mut series.points);
    points.for_each(|point| point.x *= 100.0 / first.capacity());
    plot
}
