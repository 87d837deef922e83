//! From samples to rows: times, shares, and ratios within a round.

use super::system::System;
use super::testbed::Sample;
use heddle_core::Ns;
use heddle_load::Op;
use heddle_metrics::{Better, Collector, Row, Run};

/// The least CPU time of a process's runs, of all threads: noise only adds time.
pub(super) const BEST: &str = "best_cpu_ns";
/// By how much that is above the stock runtime's of the same round.
pub(super) const COST: &str = "cost_percent";
/// How many times lower the p99 of short requests is than the stock runtime's.
pub(super) const GAIN: &str = "short_p99_gain";
/// The same against Aspen's policy with the same settings.
pub(super) const OVER_ASPEN: &str = "short_p99_gain_over_aspen";
/// Percentiles of short requests, with the names of their rows.
pub(super) const TAIL: [(f64, &str); 5] = [
    (50.0, "short_p50_ns"),
    (90.0, "short_p90_ns"),
    (95.0, "short_p95_ns"),
    (99.0, "short_p99_ns"),
    (99.9, "short_p999_ns"),
];

/// The rows of one run; `round` has the others with which it is compared.
pub(super) fn add(collect: &mut Collector, case: &str, sample: &Sample, round: &[Sample]) {
    let (name, why) = (sample.system.to_string(), sample.invalid());
    let value = |value: f64| why.clone().map_or(Run::ok(value), |why| Run::invalid(value, why));
    let mut at = collect.at_load(sample.run.rate);
    let long = [(50.0, "long_p50_ns"), (99.0, "long_p99_ns")];
    let short = TAIL.iter().map(|of| (Op::Get, of));
    for (op, &(percent, metric)) in short.chain(long.iter().map(|of| (Op::Scan, of))) {
        let latency = &sample.run.tally.op(op).latency;
        let run = match latency.is_empty() {
            // One request of a hundred is long: a short run may have none.
            true => Run::invalid(f64::NAN, "no such request"),
            false => value(latency.percentile(percent).0 as f64),
        };
        at.add(&name, case, metric, "ns", run);
    }
    at.add(&name, case, "achieved", "1/s", value(sample.run.throughput_of_all()));
    let late = sample.run.tally.counts().late_share() * 100.0;
    at.add(&name, case, "late_percent", "%", value(late));
    if let Some(cpu) = sample.cpu {
        at.add(&name, case, "cpu_percent", "%", value(cpu));
    }
    for (metric, gain) in gains(sample, round) {
        at.add(&name, case, metric, "x", gain);
    }
}

fn gains(sample: &Sample, round: &[Sample]) -> Vec<(&'static str, Run)> {
    let peer = |wanted: System| {
        let same = |other: &&Sample| other.system == wanted && other.share == sample.share;
        round.iter().find(same).map(|other| gain(sample, other))
    };
    let stock = (sample.system != System::STOCK).then_some(System::STOCK);
    let of = |metric, against: Option<System>| Some((metric, peer(against?)?));
    let both = [of(GAIN, stock), of(OVER_ASPEN, sample.system.aspen())];
    both.into_iter().flatten().collect()
}

/// How many times lower the sample's p99 is than the other's.
fn gain(sample: &Sample, other: &Sample) -> Run {
    let p99 = |sample: &Sample| sample.run.tally.op(Op::Get).latency.p99().max(Ns(1)).0 as f64;
    let value = p99(other) / p99(sample);
    match sample.invalid().or_else(|| other.invalid()) {
        Some(why) => Run::invalid(value, why),
        None => Run::ok(value),
    }
}

/// Adds the direction that the unit does not imply.
pub(super) fn directed(row: Row) -> Row {
    if row.metric.contains("_gain") { row.with_better(Better::Higher) } else { row }
}
