//! The quantities of a run that are compared with theory.

use super::tally::Tally;
use crate::{Outcome, PartOutcome, Scenario};
use heddle_metrics::Histogram;
use std::fmt;

/// A quantity with a theoretical value. Times are in ms, the mean service time of most cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// The mean response time.
    Mean,
    /// The response time that this many percent of the requests do not exceed.
    Percentile(f64),
    /// The mean response time of a part of the mix.
    PartMean(usize),
    /// The mean wait: response minus service, for policies that do not preempt.
    MeanWait,
    /// The wait that this many percent do not exceed.
    WaitPercentile(f64),
    /// The share of the requests that wait at all.
    Waiting,
    /// The mean slowdown.
    Slowdown,
    /// The mean slowdown of a part of the mix.
    PartSlowdown(usize),
    /// The quantity that Kleinrock's law conserves: the sum of the parts' mean waits, each weighted by
    /// its load.
    ConservedWait,
    /// The share of the CPUs' time that requests take.
    Busy,
    /// The mean number of requests in the system.
    InSystem,
    /// The same divided by arrival rate times mean response time, which Little's law makes 1.
    Little,
    /// The mean time from an arrival at an empty system until it is empty again.
    BusyPeriod,
    /// Requests done per second.
    Throughput,
    /// Preemptions per second.
    Preemptions,
    /// 1 if the run is reported to have no steady state, else 0.
    Unstable,
}

/// One run.
pub(super) struct MeasuredRun<'a> {
    pub scenario: &'a Scenario,
    pub outcome: &'a Outcome,
    pub tally: &'a Tally,
}

impl Measure {
    /// The unit, empty for shares and ratios.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Mean | Measure::Percentile(_) | Measure::PartMean(_) | Measure::MeanWait => {
                "ms"
            }
            Measure::WaitPercentile(_) | Measure::ConservedWait | Measure::BusyPeriod => "ms",
            Measure::Throughput | Measure::Preemptions => "1/s",
            _ => "",
        }
    }

    pub(super) fn of(self, seen: &MeasuredRun<'_>) -> f64 {
        let MeasuredRun { scenario, outcome, tally } = *seen;
        let per_second = |count: u64| count as f64 / outcome.time.as_secs_f64();
        match self {
            Measure::Mean => ms(outcome.mean.value),
            Measure::Percentile(percent) => ms_at(&outcome.all.response, percent),
            Measure::PartMean(part) => part_mean(&outcome.parts[part]),
            Measure::MeanWait => ms(outcome.mean.value - scenario.mix.mean()),
            Measure::WaitPercentile(percent) => ms_at(&outcome.wait, percent),
            Measure::Waiting => share_above_zero(&outcome.wait),
            Measure::Slowdown => outcome.all.slowdown.mean(),
            Measure::PartSlowdown(part) => outcome.parts[part].slowdown.mean(),
            Measure::ConservedWait => conserved_wait(scenario, outcome),
            Measure::Busy => outcome.shares.requests,
            Measure::InSystem => tally.in_system(),
            Measure::Little => {
                tally.in_system() / (per_second(outcome.counts.arrivals) * outcome.mean.value / 1e9)
            }
            Measure::BusyPeriod => ms(tally.busy_period()),
            Measure::Throughput => outcome.throughput,
            Measure::Preemptions => per_second(outcome.counts.preemptions),
            Measure::Unstable => f64::from(u8::from(outcome.unstable.is_some())),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Measure::Mean => f.write_str("mean response"),
            Measure::Percentile(percent) => write!(f, "p{percent} of response"),
            Measure::PartMean(part) => write!(f, "mean response, part {}", part + 1),
            Measure::MeanWait => f.write_str("mean wait"),
            Measure::WaitPercentile(percent) => write!(f, "p{percent} of wait"),
            Measure::Waiting => f.write_str("share that waits"),
            Measure::Slowdown => f.write_str("mean slowdown"),
            Measure::PartSlowdown(part) => write!(f, "mean slowdown, part {}", part + 1),
            Measure::ConservedWait => f.write_str("conserved wait"),
            Measure::Busy => f.write_str("busy share"),
            Measure::InSystem => f.write_str("requests in system"),
            Measure::Little => f.write_str("L over lambda T"),
            Measure::BusyPeriod => f.write_str("mean busy period"),
            Measure::Throughput => f.write_str("throughput"),
            Measure::Preemptions => f.write_str("preemptions"),
            Measure::Unstable => f.write_str("reported unstable"),
        }
    }
}

fn ms(ns: f64) -> f64 {
    ns / 1e6
}

fn ms_at(times: &Histogram, percent: f64) -> f64 {
    ms(times.percentile(percent).0 as f64)
}

fn part_mean(part: &PartOutcome) -> f64 {
    ms(part.response.mean().0 as f64)
}

/// Returns the share of the samples above zero, by bisection of the percentile that is still zero.
fn share_above_zero(times: &Histogram) -> f64 {
    let (mut zero, mut above) = (0.0, 100.0);
    for _ in 0..50 {
        let middle = 0.5 * (zero + above);
        *if times.percentile(middle).0 == 0 { &mut zero } else { &mut above } = middle;
    }
    1.0 - zero / 100.0
}

fn conserved_wait(scenario: &Scenario, outcome: &Outcome) -> f64 {
    let per_ms = scenario.rate() / 1e3;
    let parts = scenario.mix.parts().iter().zip(&outcome.parts);
    let wait = |(part, seen): (&crate::workload::Part, &PartOutcome)| {
        let service = ms(part.service.mean());
        per_ms * part.share * service * (part_mean(seen) - service)
    };
    parts.map(wait).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Ns;

    #[test]
    fn the_share_that_waits_is_found_to_the_sample() {
        let mut waits = Histogram::new();
        waits.record_n(Ns(0), 700);
        waits.record_n(Ns(1), 300);
        assert!((share_above_zero(&waits) - 0.3).abs() < 1e-9);
        let mut all = Histogram::new();
        all.record_n(Ns(5), 10);
        assert!(share_above_zero(&all) > 0.9999);
    }
}
