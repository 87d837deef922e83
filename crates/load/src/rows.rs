//! From counts to rows of the result format.

use super::mix::{Mix, Op};
use super::options::LoadRun;
use heddle_metrics::{Collector, Run};

/// Adds one run's rows to `collect` under the name `system`: for each operation its latencies, slowdowns
/// and throughput; for all together (case `all`) throughput and the shares of late, lost and failed requests.
pub fn add_rows(collect: &mut Collector, system: &str, mix: &Mix, run: &LoadRun) {
    let invalid = run.invalid();
    let why = invalid.as_deref();
    let mut at = collect.at_load(run.rate);
    for op in mix.ops() {
        let of = run.tally.op(op);
        at.latency(system, op.name(), &of.latency, why);
        if of.slowdown.count() > 0 {
            at.slowdown(system, op.name(), &of.slowdown, why);
        }
        at.add(system, op.name(), "throughput", "op/s", value(run.throughput(op), why));
    }
    let counts = run.tally.counts();
    let failed = counts.failed as f64 / counts.due.max(1) as f64;
    at.add(system, "all", "throughput", "op/s", value(run.throughput_of_all(), why));
    for (metric, share) in
        [("late", counts.late_share()), ("lost", counts.lost_share()), ("failed", failed)]
    {
        at.add(system, "all", metric, "%", value(share * 100.0, why));
    }
}

pub(crate) fn value(value: f64, invalid: Option<&str>) -> Run {
    match invalid {
        Some(why) => Run::invalid(value, why),
        None => Run::ok(value),
    }
}

impl LoadRun {
    /// One progress line with the counts of the run.
    pub fn summary(&self) -> String {
        let counts = self.tally.counts();
        let answered: u64 = Op::ALL.into_iter().map(|op| self.tally.op(op).latency.count()).sum();
        format!(
            "{} due, {} answered, {} lost, {} failed, {} late ({:.2} %), {} stray",
            counts.due,
            answered.saturating_sub(counts.lost),
            counts.lost,
            counts.failed,
            counts.late,
            counts.late_share() * 100.0,
            self.tally.stray
        )
    }
}
