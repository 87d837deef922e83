//! Quantities that only the schedule shows: how many tasks are in the system, and when there are none.

use crate::{Event, EventKind, Watch};
use heddle_core::Ns;

/// Counts tasks in the system over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    tasks: u64,
    since: Ns,
    /// The integral of the number of tasks over time, in task nanoseconds.
    area: u128,
    /// Time with at least one task.
    busy: Ns,
    /// How often the last task left.
    emptied: u64,
}

impl Tally {
    /// Returns the mean number of tasks in the system.
    pub(super) fn in_system(&self) -> f64 {
        self.area as f64 / self.since.0 as f64
    }

    /// Returns the mean time from an arrival at an empty system until it is empty again, in ns.
    pub(super) fn busy_period(&self) -> f64 {
        self.busy.0 as f64 / self.emptied as f64
    }

    fn pass_to(&mut self, now: Ns) {
        let passed = now - self.since;
        self.area += u128::from(self.tasks) * u128::from(passed.0);
        if self.tasks > 0 {
            self.busy += passed;
        }
        self.since = now;
    }
}

impl Watch for Tally {
    #[inline]
    fn step(&mut self, step: Event) {
        self.pass_to(step.at);
        match step.kind {
            EventKind::New | EventKind::Wakeup => self.tasks += 1,
            EventKind::Block | EventKind::Exit => {
                self.tasks -= 1;
                self.emptied += u64::from(self.tasks == 0);
            }
            // Of other kinds the simulator records none.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::CpuId;

    #[test]
    fn tasks_and_busy_periods_are_counted_by_hand() {
        let mut tally = Tally::default();
        // One task from 10 to 30, with a second from 20 to 30; alone again from 50 to 60.
        for (at, what) in [
            (10, EventKind::New),
            (20, EventKind::New),
            (30, EventKind::Exit),
            (30, EventKind::Exit),
            (50, EventKind::New),
            (60, EventKind::Exit),
        ] {
            tally.step(Event::task(Ns(at), CpuId(0), 0, what));
        }
        assert_eq!(tally.busy_period(), 15.0);
        assert_eq!(tally.in_system(), 40.0 / 60.0);
    }
}
