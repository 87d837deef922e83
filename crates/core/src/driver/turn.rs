//! How long tasks keep a CPU, and how long a newly arriving task would wait.

use crate::Ns;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The weight of the past in the average, in per cent: alpha is 0.05 (SKQ, section 4.2).
const PAST: u64 = 95;

/// The turns of one CPU. Written by that CPU alone and read by all, so readers may see slightly stale values.
#[derive(Debug, Default)]
pub struct TurnTime {
    /// When the current turn began, plus one; zero if there is none.
    since: AtomicU64,
    /// Average time per task, in nanoseconds.
    average: AtomicU64,
    /// Number of tasks in the current turn.
    tasks: AtomicU64,
}

impl TurnTime {
    /// Starts a turn for `tasks` tasks at `now`: one, unless a thread takes several events at once.
    #[inline]
    pub fn begin(&self, now: Ns, tasks: usize) {
        self.tasks.store(tasks as u64, Relaxed);
        self.since.store(now.0.saturating_add(1), Relaxed);
    }

    /// Returns when the current turn began; `None` if there is none.
    #[inline]
    pub fn since(&self) -> Option<Ns> {
        self.since.load(Relaxed).checked_sub(1).map(Ns)
    }

    /// Returns the number of tasks in the current or last turn.
    #[inline]
    pub fn tasks(&self) -> u64 {
        self.tasks.load(Relaxed)
    }

    /// Ends the turn. A turn for no task does not count towards the average.
    #[inline]
    pub fn end(&self, now: Ns) {
        let Some(Ns(since)) = self.since() else { return };
        self.since.store(0, Relaxed);
        let Some(took) = now.0.saturating_sub(since).checked_div(self.tasks.load(Relaxed)) else {
            return;
        };
        let average = match self.average.load(Relaxed) {
            0 => took,
            average => (PAST * average + (100 - PAST) * took) / 100,
        };
        self.average.store(average, Relaxed);
    }

    /// Returns the average time per task; zero before the first has ended.
    #[inline]
    pub fn average(&self) -> Ns {
        Ns(self.average.load(Relaxed))
    }

    /// Starts from a known average.
    pub fn set_average(&self, average: Ns) {
        self.average.store(average.0, Relaxed);
    }

    /// Returns how long a task that arrives at `now` behind `waiting` others will wait: the rest of the current turn,
    /// and a turn for each (`t_ret + t_avg * (n_ret + n_cur)` in SKQ, section 4.2). A turn that exceeds the average may
    /// end at any moment.
    #[inline]
    pub fn wait(&self, now: Ns, waiting: usize) -> Ns {
        let average = self.average.load(Relaxed);
        let ends = self.since().map_or(0, |since| since.0 + average * self.tasks());
        Ns(ends.saturating_sub(now.0) + average * waiting as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_forgets_slowly() {
        let turns = TurnTime::default();
        for (begins, ends) in [(100, 200), (300, 500)] {
            turns.begin(Ns(begins), 1);
            turns.end(Ns(ends));
        }
        assert_eq!((turns.average(), turns.since()), (Ns(105), None));
    }

    #[test]
    fn a_wait_is_what_is_left_of_the_turn_and_a_turn_for_each_before() {
        let turns = TurnTime::default();
        turns.set_average(Ns(100));
        assert_eq!((turns.wait(Ns(1000), 0), turns.wait(Ns(1000), 3)), (Ns(0), Ns(300)));
        turns.begin(Ns(1000), 1);
        assert_eq!(turns.wait(Ns(1050), 1), Ns(150));
        // It should have ended at 1100: it may end at any moment, but not in the past.
        assert_eq!(turns.wait(Ns(9000), 1), Ns(100));
    }

    #[test]
    fn a_turn_for_two_tasks_takes_twice_as_long() {
        let turns = TurnTime::default();
        turns.begin(Ns(1000), 2);
        turns.end(Ns(1200));
        assert_eq!(turns.average(), Ns(100));
        turns.begin(Ns(2000), 2);
        assert_eq!(turns.wait(Ns(2050), 1), Ns(250));
    }
}
