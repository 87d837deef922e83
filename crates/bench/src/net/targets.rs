//! Targets of the design (`docs/design/netstack.md`), each against `net=kernel` in the same run unless it says
//! otherwise.

use super::compare::ratio_name;
use super::contests::BOTH;
use super::measured::Metric;
use super::{tail, without_net};
use crate::suite::Target;
use heddle_metrics::Row;

/// A bound.
#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}
use Bound::{AtLeast, AtMost};

/// A bound for a ratio: what, system, case, metric, over which system.
type Goal = (&'static str, &'static str, &'static str, Metric, &'static str, Bound);

const GOALS: &[Goal] = &[
    (
        "UDP echo, both ends spin: p50 over a plain program's",
        "xdp",
        "udp-spin",
        Metric::P50,
        "plain",
        AtMost(0.85),
    ),
    (
        "UDP echo, lanes at both ends, p50 over a plain program's",
        BOTH,
        "udp-spin",
        Metric::P50,
        "plain",
        AtMost(0.85),
    ),
    (
        "UDP, 32 in flight: CPU of both ends for a request",
        "xdp",
        "udp-32",
        Metric::Cpu,
        "kernel",
        AtMost(0.8),
    ),
    ("TCP, 1,000 connections: requests/s", "xdp", "tcp-1000", Metric::Rate, "kernel", AtLeast(1.3)),
    (
        "TCP, 1,000 connections: CPU of both ends for a request",
        "xdp",
        "tcp-1000",
        Metric::Cpu,
        "kernel",
        AtMost(0.75),
    ),
    (
        "one stream to the server",
        "xdp",
        "stream-to-server",
        Metric::Goodput,
        "kernel",
        AtLeast(0.8),
    ),
    (
        "one stream from the server",
        "xdp",
        "stream-from-server",
        Metric::Goodput,
        "kernel",
        AtLeast(0.8),
    ),
    (
        "1 % loss: a stream to the server",
        "xdp",
        "loss-stream-to-server",
        Metric::Goodput,
        "kernel",
        AtLeast(0.8),
    ),
    (
        "1 % loss: a stream from the server",
        "xdp",
        "loss-stream-from-server",
        Metric::Goodput,
        "kernel",
        AtLeast(0.8),
    ),
    ("1 % loss: p99.9 of requests", "xdp", "loss-tcp", Metric::P999, "kernel", AtMost(1.0)),
];

/// The longest p99.9 with `rto-min=5ms` if only answers are lost, in nanoseconds.
const SHORT_TIMEOUT: f64 = 20e6;

/// Returns the targets that are in `rows`.
pub(super) fn of(rows: &[Row]) -> Vec<Target> {
    let tail = find(rows, "xdp", "loss-tcp-rto-5ms", "p99.9").map(|row| {
        Target::at_most(
            "1 % of the answers lost, rto-min=5ms: p99.9 of requests",
            row,
            SHORT_TIMEOUT,
        )
    });
    let rest = tail::target(rows).into_iter().chain(tail).chain(without_net::targets(rows));
    ratios(rows).into_iter().chain(rest).collect()
}

fn ratios(rows: &[Row]) -> Vec<Target> {
    let of = |&(what, system, case, metric, reference, bound): &Goal| {
        let row = find(rows, system, case, &ratio_name(metric, reference))?;
        let what = format!("{what} ({system} over {reference})");
        Some(match bound {
            AtMost(most) => Target::at_most(&what, row, most),
            AtLeast(least) => Target::at_least(&what, row, least),
        })
    };
    GOALS.iter().filter_map(of).collect()
}

/// Returns the row of a system, case and metric.
pub(super) fn find<'a>(rows: &'a [Row], system: &str, case: &str, metric: &str) -> Option<&'a Row> {
    rows.iter().find(|row| (&*row.system, &*row.case, &*row.metric) == (system, case, metric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_metrics::Run;

    fn row(system: &str, case: &str, metric: &str, unit: &str, value: f64) -> Row {
        Row::from_runs(system, case, metric, unit, &[Run::ok(value)])
    }

    #[test]
    fn ratios_are_bounded_on_their_side() {
        let rows = [
            row("xdp", "tcp-1000", "rate_of_kernel", "x", 1.4),
            row("xdp", "tcp-1000", "cpu_of_kernel", "x", 0.9),
            row("xdp", "tcp-1", "cpu_of_kernel", "x", 0.1),
        ];
        let reached: Vec<bool> = of(&rows).iter().map(|target| target.reached).collect();
        assert_eq!(reached, [true, false]);
    }

    #[test]
    fn figures_without_a_peer_have_targets_too() {
        let rows = [
            row("heddle-tcp", "stack-32", "cost", "ns", 251.0),
            row("xdp", "idle", "is_ready", "ns", 1.0),
            row("xdp", "idle", "preemptions", "", 1.0),
            row("kernel", "idle", "idle_cpu", "ns", 1e9),
            row("xdp", "loss-tcp-rto-5ms", "p99.9", "ns", 19e6),
        ];
        let reached: Vec<bool> = of(&rows).iter().map(|target| target.reached).collect();
        assert_eq!(reached, [true, false, true, false], "loss, stack, look, preemptions");
    }
}
