//! Turns an outcome into rows of the one result format.

use crate::engine::BATCHES;
use crate::{Estimate, Outcome, Scenario};
use heddle_metrics::{Better, Collector, Row, Run};

/// Returns the rows of a run. The system is the policy's text; the case is a part of the mix, or `all`;
/// the load is the offered one, if arrivals are open.
///
/// | metrics | unit | cases |
/// |---|---|---|
/// | `p50`, `p90`, `p99`, `p99.9`, `mean`, `max` | ns | parts, `all` |
/// | `slowdown_p50`, `slowdown_p90`, `slowdown_p99`, `slowdown_p99.9`, `slowdown_mean` | x | parts, `all` |
/// | `wait_p50`, `wait_p99`, `wait_p99.9`: until a request first ran | ns | `all` |
/// | `throughput` | 1/s | `all` |
/// | `cpu_requests`, `cpu_batch`, `cpu_overhead`, `cpu_idle`: where the CPUs' time went | % | `all` |
/// | `starts`, `preemptions`, `interrupts`, `steals`, `migrations`, `app_switches` | per request | `all` |
/// | `events`: what the simulator did | events | `all` |
///
/// For `mean`, `p99`, `p99.9` and `slowdown_p99.9` of `all`, `min` and `max` are the ends of the 95 %
/// confidence interval, and `runs` is the number of batches behind it; for the others all three are of
/// the run itself. All rows of a run without a steady state are invalid and say why.
pub fn rows(scenario: &Scenario, outcome: &Outcome) -> Vec<Row> {
    let mut collect = Collector::new();
    let why = outcome.unstable.map(|unstable| unstable.to_string());
    let (system, why) = (scenario.policy.as_str(), why.as_deref());
    let mut at = match scenario.arrivals.is_open() {
        true => collect.at_load(outcome.offered),
        false => collect.without_load(),
    };
    for part in parts(outcome) {
        at.latency(system, &part.name, &part.response, why);
        at.slowdown(system, &part.name, &part.slowdown, why);
    }
    for (metric, unit, value) in singles(outcome) {
        let run = why.map_or(Run::ok(value), |why| Run::invalid(value, why));
        at.add(system, "all", metric, unit, run);
    }
    let mut rows = collect.into_rows();
    rows.iter_mut().filter(|row| row.case == "all").for_each(|row| refine(row, outcome));
    rows
}

/// Returns the parts, and all of them together if there are several.
pub(super) fn parts(outcome: &Outcome) -> impl Iterator<Item = &crate::PartOutcome> {
    let several = outcome.parts.len() > 1;
    outcome.parts.iter().filter(move |_| several).chain([&outcome.all])
}

/// Returns the single values, each with metric and unit.
fn singles(outcome: &Outcome) -> Vec<(&'static str, &'static str, f64)> {
    let (shares, counts) = (&outcome.shares, &outcome.counts);
    let wait = |percent: f64| outcome.wait.percentile(percent).0 as f64;
    let per_request = |count: u64| count as f64 / counts.arrivals.max(1) as f64;
    vec![
        ("wait_p50", "ns", wait(50.0)),
        ("wait_p99", "ns", wait(99.0)),
        ("wait_p99.9", "ns", wait(99.9)),
        ("throughput", "1/s", outcome.throughput),
        ("cpu_requests", "%", shares.requests * 100.0),
        ("cpu_batch", "%", shares.batch * 100.0),
        ("cpu_overhead", "%", shares.overhead * 100.0),
        ("cpu_idle", "%", shares.idle * 100.0),
        ("starts", "per request", per_request(counts.starts)),
        ("preemptions", "per request", per_request(counts.preemptions)),
        ("interrupts", "per request", per_request(counts.interrupts)),
        ("steals", "per request", per_request(counts.steals)),
        ("migrations", "per request", per_request(counts.migrations)),
        ("app_switches", "per request", per_request(counts.app_switches)),
        ("events", "events", counts.events() as f64),
    ]
}

/// Adds the direction, if the unit does not imply it, and the interval, if there is one.
fn refine(row: &mut Row, outcome: &Outcome) {
    if ["cpu_requests", "cpu_batch"].contains(&row.metric.as_str()) {
        row.better = Some(Better::Higher);
    }
    let estimate = match row.metric.as_str() {
        "mean" => outcome.mean,
        "p99" => outcome.p99,
        "p99.9" => outcome.p999,
        "slowdown_p99.9" => outcome.slowdown_p999,
        _ => return,
    };
    let Estimate { half_width, .. } = estimate;
    if half_width.is_finite() && row.runs > 0 {
        row.min = (row.value - half_width).max(0.0);
        row.max = row.value + half_width;
        row.runs = BATCHES as u32;
        *row = row.clone().with_note("min and max: 95 % confidence interval");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run;

    fn scenario(load: f64) -> Scenario {
        let mix = "get: 90% 1us, scan: 10% 20us".parse().unwrap();
        Scenario { requests: 20_000, ..Scenario::ideal("fifo", 2, mix, load) }
    }

    #[test]
    fn a_run_becomes_rows_with_intervals() {
        let (scenario, row) = (scenario(0.5), |rows: &[Row], case: &str, metric: &str| {
            rows.iter().find(|row| row.case == case && row.metric == metric).unwrap().clone()
        });
        let outcome = run(&scenario).unwrap();
        let rows = rows(&scenario, &outcome);
        assert!(
            rows.iter()
                .all(|row| row.valid && row.system == "fifo" && row.load == Some(scenario.rate()))
        );
        let p99 = row(&rows, "all", "p99");
        assert!(p99.min < p99.value && p99.value < p99.max && p99.runs == 20, "{p99:?}");
        let slowdown = row(&rows, "all", "slowdown_mean");
        assert_eq!((slowdown.value, slowdown.unit.as_str()), (outcome.all.slowdown.mean(), "x"));
        let scan = row(&rows, "scan", "p50");
        assert_eq!((scan.min, scan.max, scan.runs), (scan.value, scan.value, 1));
        let shares = ["requests", "batch", "overhead", "idle"]
            .map(|what| row(&rows, "all", &format!("cpu_{what}")).value);
        assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-6, "{shares:?}");
    }

    #[test]
    fn a_run_without_a_steady_state_gives_invalid_rows_that_say_why() {
        let mut scenario = scenario(0.95);
        scenario.costs.switch = heddle_core::Ns::from_us(3);
        let outcome = run(&scenario).unwrap();
        let rows = rows(&scenario, &outcome);
        assert!(
            rows.iter().all(|row| !row.valid && row.note.contains("unstable")),
            "{:?}",
            rows[0]
        );
    }
}
