//! The first steps of a schedule as a file.

use crate::Event;
use std::fmt::Write;

/// Returns `steps` as comma-separated values: `ns,cpu,task,what`, a line each, in order of time. `what`
/// is `new`, `wakeup`, `start`, `preempted`, `block` or `exit`.
pub fn schedule_csv(steps: &[Event]) -> String {
    let mut text = String::from("ns,cpu,task,what\n");
    for Event { at, cpu, who, kind, .. } in steps {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{},{},{who},{kind}", at.0, cpu.0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::{CpuId, EventKind, Ns};

    #[test]
    fn a_step_is_a_line() {
        let step = Event::task(Ns::from_us(2), CpuId(3), 7, EventKind::Preempted);
        assert_eq!(schedule_csv(&[step]), "ns,cpu,task,what\n2000,3,7,preempted\n");
    }
}
