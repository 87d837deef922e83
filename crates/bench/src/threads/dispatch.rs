//! Rows on the time until a task of a central policy runs: taken by the worker, or assigned by a dispatcher.

use std::path::Path;
use std::process::Command;

use heddle_core::Ns;
use heddle_metrics::{Collector, Run};

use super::process;

/// The metric of these rows.
pub const METRIC: &str = "handover_ns";
/// The names of the hidden child's operations: workers take tasks, or a dispatcher assigns them.
pub const CHILD_OPS: [&str; 2] = ["dispatch_self", "dispatch_dispatcher"];
/// Explanation of the rows.
pub const PAPER: &str = "wall time: yield is from one task to the next waiting one (1e9 divided by it are \
    assigned per second), wake from a task to one that it wakes; late is the lateness of a task that slept that \
    long. In the simulator a spinning dispatcher takes 399 ns from a free worker to its next task (Skyloft), an \
    agent of the kernel's 2,037 (ghOSt, Table 3)";

const PARTS: [&str; 4] = ["yield", "wake", "late_20us", "late_5ms"];

/// Measures both ways once.
pub fn measure(program: &Path, budget: Ns, collect: &mut Collector) {
    for op in CHILD_OPS {
        let mut command = Command::new(program);
        let ms = (budget.0 / 1_000_000).max(1).to_string();
        command.args(["bench", "threads", "--child", "heddle", op, &ms]);
        let parts = process::output(command, None).and_then(|text| parse(&text));
        for (at, part) in PARTS.iter().enumerate() {
            let run = match &parts {
                Ok(values) => Run::ok(values[at]),
                Err(why) => Run::invalid(f64::NAN, why.clone()),
            };
            collect.add("heddle", &format!("{op}_{part}"), METRIC, "ns", run);
        }
    }
}

/// Four numbers, or the child's sentence that there is no CPU for a dispatcher.
fn parse(text: &str) -> Result<[f64; 4], String> {
    if text.starts_with("not available") {
        return Err(text.trim().to_owned());
    }
    process::numbers(text)
}

#[cfg(test)]
mod tests {
    use super::super::is_failure;
    use super::*;

    #[test]
    fn four_numbers_are_read() {
        assert_eq!(parse("1 2.5 3 4\n"), Ok([1.0, 2.5, 3.0, 4.0]));
        assert!(parse("1 2 3").is_err() && parse("1 2 3 x").is_err());
    }

    #[test]
    fn a_machine_with_one_cpu_is_no_failure() {
        let why = parse("not available: one CPU\n").unwrap_err();
        let mut collect = Collector::new();
        collect.add("heddle", "dispatch", METRIC, "ns", Run::invalid(f64::NAN, why));
        assert!(!is_failure(&collect.into_rows()[0]));
    }

    #[test]
    fn a_child_that_fails_is_eight_invalid_rows() {
        let mut collect = Collector::new();
        measure(Path::new("/bin/false"), Ns::ZERO, &mut collect);
        let rows = collect.into_rows();
        assert!(rows.len() == 8 && rows.iter().all(is_failure));
    }
}
