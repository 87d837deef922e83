//! From samples to rows, targets and findings.

use heddle_metrics::{Better, Collector, Row, Run};

use super::options::{Case, MixOptions, Point};
use crate::steer::System;
use heddle_load::{Invalid, LoadRun, Op};

/// One point in one round.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The round.
    pub round: u32,
    /// The point.
    pub point: Point,
    /// The counts.
    pub run: LoadRun,
}

/// The ratio of hash's GET p99 to a system's, in one round.
const RATIO: &str = "get_p99_gain";

/// Why a run must not be quoted. Dropped datagrams are a result here, not a fault of the run.
pub fn invalid(run: &LoadRun) -> Option<String> {
    let problems = run.tally.problems();
    let problems = problems.iter().filter(|p| !matches!(p, Invalid::Lost(_)));
    let problems: Vec<String> = problems.map(ToString::to_string).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

/// The rows of all samples, medians over rounds; ratios are within rounds.
#[must_use]
pub fn rows(options: &MixOptions, samples: &[Sample]) -> Vec<Row> {
    let mut collect = Collector::new();
    for sample in samples {
        add(&mut collect, sample);
    }
    let mut rows = collect.into_rows();
    rows.extend(ratios(options, samples));
    let note = format!("times are dilated {} times", options.dilation.0);
    let dilated = |row: Row| if row.unit == "ns" { row.with_note(&note) } else { row };
    rows.into_iter().map(dilated).collect()
}

/// The name of an operation's requests in metrics.
fn kind(case: Case, op: Op) -> &'static str {
    match (case.has_users(), op) {
        (true, Op::Get) => "ls",
        (true, _) => "be",
        (false, op) => op.name(),
    }
}

fn add(collect: &mut Collector, sample: &Sample) {
    let (point, run) = (&sample.point, &sample.run);
    let (system, case, why) = (point.system.to_string(), point.name(), invalid(run));
    let value = |value: f64| match &why {
        Some(why) => Run::invalid(value, why.clone()),
        None => Run::ok(value),
    };
    let mut at = collect.at_load(run.rate);
    for op in point.case.mix().ops() {
        let (of, name) = (run.tally.op(op), kind(point.case, op));
        let times = [
            ("p50", of.latency.p50()),
            ("p99", of.latency.p99()),
            ("service_p50", of.service.p50()),
        ];
        for (what, time) in times {
            at.add(&system, &case, &format!("{name}_{what}_ns"), "ns", value(time.0 as f64));
        }
        let dropped = of.lost as f64 / (of.sent + of.unsent).max(1) as f64;
        let served = run.throughput(op);
        if point.case.has_users() {
            at.add(&system, &case, &format!("{name}_dropped_share"), "%", value(dropped * 100.0));
            at.add(&system, &case, &format!("{name}_throughput"), "op/s", value(served));
        }
    }
    let counts = run.tally.counts();
    at.add(&system, &case, "dropped_share", "%", value(counts.lost_share() * 100.0));
    at.add(&system, &case, "late_share", "%", value(counts.late_share() * 100.0));
}

/// GET p99 of the kernel's hash over that of each other system, in the same round at the same load.
fn ratios(options: &MixOptions, samples: &[Sample]) -> Vec<Row> {
    let mut collect = Collector::new();
    for sample in samples.iter().filter(|s| s.point.system != System::Hash) {
        let point = Point { system: System::Hash, ..sample.point.clone() };
        let of = samples.iter().find(|s| s.round == sample.round && s.point == point);
        let Some(hash) = of else { continue };
        let p99 = |s: &Sample| s.run.tally.op(Op::Get).latency.p99().0 as f64;
        let ratio = p99(hash) / p99(sample);
        let run = match invalid(&sample.run).or_else(|| invalid(&hash.run)) {
            Some(why) => Run::invalid(ratio, why),
            None => Run::ok(ratio),
        };
        let system = sample.point.system.to_string();
        collect.at_load(sample.run.rate).add(&system, &sample.point.name(), RATIO, "x", run);
    }
    let note = format!("hash's GET p99 over its own, {} rounds", options.rounds);
    let rows = collect.into_rows().into_iter();
    rows.map(|row| row.with_better(Better::Higher).with_note(&note)).collect()
}

/// What a system must reach relative to hash at half of capacity with rare SCANs (issue 4).
pub type Target = (&'static str, f64);

/// The targets.
#[must_use]
pub fn targets() -> [Target; 4] {
    [("sita", 10.0), ("class", 10.0), ("scan-avoid", 5.0), ("jiq", 5.0)]
}

/// The ratio of a system at half of capacity with rare SCANs.
fn gain<'a>(rows: &'a [Row], system: &str) -> Option<&'a Row> {
    let case = "mix-99.5-0.5-half-load";
    rows.iter().find(|r| r.system == system && r.case == case && r.metric == RATIO)
}

/// One sentence on all systems that [`targets`] names, without the targets: for the demo.
#[must_use]
pub fn gains(rows: &[Row]) -> String {
    let of = |(system, _): Target| gain(rows, system).map(|row| format!("{system} {}", times(row)));
    let systems: Vec<String> = targets().into_iter().filter_map(of).collect();
    match systems.is_empty() {
        true => String::new(),
        false => format!("p99 of GETs compared with the kernel's hash: {}.", systems.join("; ")),
    }
}

fn times(gain: &Row) -> String {
    let Row { value, min, max, .. } = *gain;
    if !gain.valid {
        "invalid, do not quote".into()
    } else if !gain.is_distinct_from(1.0) {
        format!("not measurable (rounds from {min:.1} to {max:.1} times)")
    } else if value < 1.0 {
        let (value, from, to) = (1.0 / value, 1.0 / max, 1.0 / min);
        format!("{value:.1} times higher (rounds from {from:.1} to {to:.1})")
    } else {
        format!("{value:.1} times lower (rounds from {min:.1} to {max:.1})")
    }
}

/// A sentence for each target. Rounds that do not agree on whether a system beats the hash decide no target.
#[must_use]
pub fn verdicts(rows: &[Row]) -> Vec<String> {
    let mut said = Vec::new();
    for (system, target) in targets() {
        let Some(row) = gain(rows, system) else { continue };
        let agreed = row.runs < 2 || row.is_distinct_from(1.0);
        let reached = match (row.valid, row.value >= target) {
            (false, _) => "the runs are invalid: do not quote",
            (true, _) if !agreed => "not measurable",
            (true, true) => "reached",
            (true, false) => "missed",
        };
        said.push(format!(
            "GET p99 at half of capacity, 99.5/0.5: {system} {:.1} times lower than hash \
             (rounds {:.1} to {:.1}; target {target:.0}: {reached}).",
            row.value, row.min, row.max
        ));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_is_called_so() {
        let row = |system: &str, runs: &[Run]| {
            Row::from_runs(system, "mix-99.5-0.5-half-load", RATIO, "x", runs)
        };
        let said = verdicts(&[
            row("sita", &[Run::ok(12.0)]),
            row("jiq", &[Run::ok(4.0)]),
            row("scan-avoid", &[Run::invalid(40.0, "late")]),
        ]);
        assert!(said[0].contains("sita 12.0") && said[0].contains("target 10: reached"));
        assert!(said[1].contains("do not quote"));
        assert!(said[2].contains("jiq 4.0") && said[2].contains("target 5: missed"));
        let said = verdicts(&[row("jiq", &[Run::ok(0.85), Run::ok(12.0)])]);
        assert!(said[0].ends_with("target 5: not measurable)."), "{said:?}");
    }

    #[test]
    fn the_demo_names_no_target_and_no_gain_that_rounds_disagree_on() {
        let row = |system: &str, runs: &[f64]| {
            let runs: Vec<Run> = runs.iter().copied().map(Run::ok).collect();
            Row::from_runs(system, "mix-99.5-0.5-half-load", RATIO, "x", &runs)
        };
        let rows = [row("sita", &[11.0, 13.0]), row("class", &[0.4, 0.5]), row("jiq", &[0.9, 4.1])];
        assert_eq!(
            gains(&rows),
            "p99 of GETs compared with the kernel's hash: sita 12.0 times lower (rounds from 11.0 to 13.0); \
             class 2.2 times higher (rounds from 2.0 to 2.5); jiq not measurable (rounds from 0.9 to 4.1 times)."
        );
        assert_eq!(gains(&[]), "");
    }
}
