//! The first steps of a schedule as a file.

use crate::Step;
use std::fmt::Write;

/// Returns `steps` as comma-separated values: `ns,cpu,task,what`, a line each, in order of time. `what`
/// is `new`, `wakeup`, `start`, `preempted`, `block` or `exit`.
pub fn schedule_csv(steps: &[Step]) -> String {
    let mut text = String::from("ns,cpu,task,what\n");
    for Step { at, cpu, task, what } in steps {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{},{},{task},{what}", at.0, cpu.0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::{CpuId, Ns, StepKind};

    #[test]
    fn a_step_is_a_line() {
        let step = Step { at: Ns::from_us(2), cpu: CpuId(3), task: 7, what: StepKind::Preempted };
        assert_eq!(schedule_csv(&[step]), "ns,cpu,task,what\n2000,3,7,preempted\n");
    }
}
