//! Targets and reports of invented measurements; nothing is timed or built.

use super::rows::{GAIN, OVER_ASPEN};
use super::*;
use crate::suite::{Outcome, Suite, Target};
use heddle_metrics::{Results, Row, Run};

fn row(system: &str, case: &str, metric: &str, unit: &str, values: &[f64]) -> Row {
    let runs: Vec<Run> = values.iter().map(|&value| Run::ok(value)).collect();
    Row::from_runs(system, case, metric, unit, &runs)
}

fn at(load: f64, row: Row) -> Row {
    row.with_load(load)
}

fn verdict(targets: &[Target], part: &str) -> bool {
    let lines: Vec<String> = targets.iter().map(Target::line).collect();
    let target = targets.iter().find(|target| target.what.contains(part));
    target.unwrap_or_else(|| panic!("no {part}: {lines:?}")).reached
}

#[test]
fn tails_are_held_against_stock_aspen_and_noise_at_each_load() {
    let case = Carrier::Udp.case();
    let of = |load: f64, gain: f64, over: f64, off: f64| {
        [
            at(load, row("heddle-100us", case, GAIN, "x", &[gain])),
            at(load, row("heddle-100us", case, OVER_ASPEN, "x", &[over])),
            at(load, row("stock", case, "short_p99_ns", "ns", &[1000.0, 1100.0])),
            at(load, row("heddle-off", case, "short_p99_ns", "ns", &[off])),
        ]
    };
    let targets = |rows: &[Row]| targets::tails(case, &System::all(), rows);
    let good = targets(&of(8000.0, 2.0, 1.7, 1100.0));
    assert_eq!(good.len(), 3);
    assert!(good.iter().all(|target| target.reached), "{good:?}");
    let bad = targets(&of(8000.0, 1.99, 1.69, 1200.0));
    assert!(!verdict(&bad, "stock's short p99 over heddle-100us's"));
    assert!(!verdict(&bad, "aspen-100us's short p99 over"));
    assert!(!verdict(&bad, "heddle-off"));
    let both = [of(8000.0, 2.0, 1.7, 1.0), of(9000.0, 2.0, 1.7, 1.0)].concat();
    assert_eq!(targets(&both).len(), 6);
}

#[test]
fn computing_may_cost_two_per_cent_mutexes_and_echoes_five_and_calls_of_c_twenty() {
    let cost = |case, value| row("heddle-100us", case, rows::COST, "%", &[value]);
    let best = |system, case, values: &[f64]| row(system, case, rows::BEST, "ns", values);
    let rows = [
        cost("sort", 1.9),
        cost("loop", 2.1),
        cost("mutex", 4.9),
        cost("tcp-echo", 5.1),
        cost("cgo-yield", 19.0),
        best("stock", "sort", &[100.0, 104.0]),
        best("heddle-off", "sort", &[103.0]),
        best("stock", "loop", &[100.0, 100.0]),
        best("heddle-off", "loop", &[100.9]),
    ];
    let targets = targets::costs(&System::all(), &rows);
    assert_eq!(targets.len(), 6, "{targets:?}");
    assert!(verdict(&targets, "sort: heddle-100us") && verdict(&targets, "mutex: heddle-100us"));
    assert!(!verdict(&targets, "loop: heddle-100us") && !verdict(&targets, "tcp-echo: "));
    assert!(verdict(&targets, "cgo-yield: heddle-100us"));
    assert!(verdict(&targets, "heddle-off within stock's own rounds (worst: loop)"));
    let slow = [best("stock", "map", &[100.0]), best("heddle-off", "map", &[102.0])];
    assert!(!verdict(&targets::costs(&System::all(), &slow), "worst: map"));
}

#[test]
fn without_a_policy_of_heddles_nothing_is_promised() {
    let rows = [at(1.0, row("aspen-100us", "badger-udp", GAIN, "x", &[3.0]))];
    assert!(targets::tails("badger-udp", &["aspen-100us".parse().unwrap()], &rows).is_empty());
}

#[test]
fn the_report_has_tails_costs_and_conditions() {
    let toolchain = Toolchain::new("/bin/false".into(), None);
    let options = GoOptions::new(&System::all(), toolchain, true);
    let times =
        rows::TAIL.map(|(_, metric)| at(8000.0, row("stock", "badger-udp", metric, "ns", &[5e5])));
    let mut all = times.to_vec();
    all.push(row("heddle-100us", "sort", rows::COST, "%", &[1.0]));
    let outcome = Outcome { rows: all, ..Outcome::default() };
    let html = options.report(&outcome, &Results::here(outcome.rows.clone())).to_html();
    for text in
        ["short requests by percentile", "CPU time above the stock", "GOMAXPROCS=1", "--quick"]
    {
        assert!(html.contains(text), "{text}");
    }
}

/// Invariant I1 of [`crate::suite`].
#[test]
fn a_machine_without_sources_skips_each_part_and_says_why() {
    let nowhere = tempfile::tempdir().unwrap();
    let toolchain = Toolchain::new("/bin/false".into(), Some(nowhere.path().into()));
    let options = GoOptions::new(&System::all(), toolchain, true);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut silent = heddle_metrics::Progress::log(std::io::sink(), "go", 1);
    let outcome = crate::suite::run(&options, &stop, &mut silent);
    assert_eq!(outcome.skipped.len(), 3);
    assert!(outcome.skipped.iter().all(|(_, why)| why.contains("--source")));
    assert!(outcome.failed.is_empty() && outcome.rows.is_empty());
}
