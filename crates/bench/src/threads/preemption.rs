//! Rows on the cost and lateness of preemption by signals, with the ticker on any CPU and pinned to the
//! worker's. Quanta end by a timer on the worker's own CPU, so the ticker's CPU should matter little.

use std::path::Path;
use std::process::Command;

use heddle_core::Ns;
use heddle_metrics::{Collector, Run};

use super::process;

/// The metric of these rows.
pub const METRIC: &str = "cost_ns";
/// The name of the hidden child's operation.
pub const CHILD_OP: &str = "preempt";
/// Published figures for comparison.
pub const PAPER: &str = "a preemption by a signal, published: Skyloft send/receive/deliver 1,224/6,359/5,274 \
    cycles at 2 GHz; Aspen 2.4 us in all (on bare metal: a virtual machine pays an exit for each interrupt)";

const PARTS: [&str; 3] = ["preempt", "preempt_late_p99", "preempt_late_max"];

/// Measures once with each placement of the ticker.
pub fn measure(program: &Path, budget: Ns, collect: &mut Collector) {
    for (suffix, confined) in [("", false), ("_same_cpu", true)] {
        let mut command = Command::new(program);
        let ms = (budget.0 / 1_000_000).max(1).to_string();
        command.args(["bench", "threads", "--child", "heddle", CHILD_OP, &ms]);
        let parts = process::output(command, confined.then_some(1))
            .and_then(|text| process::numbers::<3>(&text));
        for (at, part) in PARTS.iter().enumerate() {
            let run = match &parts {
                Ok(values) => judged(values[at]),
                Err(why) => Run::invalid(f64::NAN, why.clone()),
            };
            collect.add("heddle", &format!("{part}{suffix}"), METRIC, "ns", run);
        }
    }
}

/// A negative cost only means that the noise was larger: shown, but not to be quoted.
fn judged(value: f64) -> Run {
    match value {
        v if !v.is_finite() => Run::invalid(v, "nothing was preempted"),
        v if v < 0.0 => Run::invalid(v, "negative: the noise was larger than the cost"),
        v => Run::ok(v),
    }
}

#[cfg(test)]
mod tests {
    use heddle_metrics::Row;

    use super::*;

    #[test]
    fn noise_is_shown_and_not_quoted() {
        let row = |value| Row::from_runs("heddle", PARTS[1], METRIC, "ns", &[judged(value)]);
        assert!(row(5.0).valid);
        assert!(!row(-5.0).valid && row(-5.0).value == -5.0);
        assert!(!row(f64::NAN).valid);
    }

    #[test]
    fn a_child_that_fails_is_six_invalid_rows() {
        let mut collect = Collector::new();
        measure(Path::new("/bin/false"), Ns::ZERO, &mut collect);
        let rows = collect.into_rows();
        assert!(rows.len() == 6 && rows.iter().all(|row| !row.valid));
    }
}
