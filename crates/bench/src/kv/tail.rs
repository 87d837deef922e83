//! The tails by which systems are compared.

use super::measured::{Measured, Sample};
use super::options::KvOptions;
use heddle_load::Op;
use heddle_metrics::{Better, Row, Run};

/// A percentile of GETs by which systems are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    /// Its metric.
    pub(super) metric: &'static str,
    percent: f64,
    /// The metric of a system's over that of two-queue.
    ratio: &'static str,
}

/// What systems are compared by: the first, unless the machine's own outliers dominate it.
pub(super) const TAILS: [Tail; 2] = [
    Tail { metric: "p99.9", percent: 99.9, ratio: "p999_ratio" },
    Tail { metric: "p99", percent: 99.0, ratio: "p99_ratio" },
];

/// The ratio of `system` to `reference` at a load, taken within each round.
pub(super) fn ratio_row(
    options: &KvOptions,
    measured: &Measured,
    tail: Tail,
    (system, reference): (usize, usize),
    load: usize,
) -> Option<Row> {
    let at = |system, round| {
        let wanted = |s: &&Sample| s.load == load && s.system == system && s.round == round;
        measured.samples.iter().find(wanted)
    };
    let runs: Vec<Run> = (0..options.rounds)
        .filter_map(|round| Some(ratio(tail, at(system, round)?, at(reference, round)?)))
        .collect();
    let name = options.systems[system].to_string();
    let rate = measured.samples.iter().find(|s| s.load == load)?.run.rate;
    let note = format!("times the GET {} of two-queue", tail.metric);
    let row = Row::from_runs(&name, "get", tail.ratio, "x", &runs).with_load(rate);
    Some(row.with_better(Better::Lower).with_note(&note))
}

fn ratio(tail: Tail, sample: &Sample, reference: &Sample) -> Run {
    let time = |s: &Sample| s.run.tally.op(Op::Get).latency.percentile(tail.percent).0 as f64;
    let value = time(sample) / time(reference);
    match sample.run.invalid().or(reference.run.invalid()) {
        Some(why) => Run::invalid(value, why),
        None => Run::ok(value),
    }
}
