//! Threads that want a CPU all the time, and record when they did not have it.

use super::window::Window;
use heddle_core::Ns;
use heddle_sys::clock;
use serde::{Deserialize, Serialize};

/// Pauses longer than this are recorded.
const PAUSE: Ns = Ns::from_ms(1);
/// Most pauses kept: a report must fit a pipe.
const KEPT: usize = 64;

/// An interval in which a thread did not run: from one clock reading to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// When it last ran.
    pub from: u64,
    /// When it ran again.
    pub to: u64,
}

impl Gap {
    /// Length.
    #[must_use]
    pub fn length(self) -> Ns {
        Ns(self.to.saturating_sub(self.from))
    }
}

/// The CPU time and pauses of a hog.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HogReport {
    /// CPU time within the window, ns.
    pub cpu_ns: u64,
    /// The longest pauses, longest first.
    pub gaps: Vec<Gap>,
    /// When it last ran, by the system's monotonic clock.
    pub last: u64,
}

impl HogReport {
    /// How long after `moment` the thread first ran; zero if it did not pause then.
    #[must_use]
    pub fn ran_after(&self, moment: Ns) -> Ns {
        let across = self.gaps.iter().find(|gap| gap.from <= moment.0 && moment.0 < gap.to);
        across.map_or(Ns::ZERO, |gap| Ns(gap.to - moment.0))
    }

    /// Its longest pause that ended after `moment`.
    #[must_use]
    pub fn longest_after(&self, moment: Ns) -> Option<Gap> {
        self.gaps.iter().copied().filter(|gap| gap.to > moment.0).max_by_key(|gap| gap.length())
    }
}

/// Spins until the window ends.
pub(super) fn hog(window: Window) -> HogReport {
    let mut report = HogReport::default();
    let mut gaps = Gaps::default();
    let mut began = None;
    let mut last = clock::now();
    loop {
        let now = clock::now();
        if now - last > PAUSE {
            gaps.add(Gap { from: last.0, to: now.0 });
        }
        last = now;
        if began.is_none() && now >= window.begin {
            began = Some(clock::thread_cpu_time());
        }
        if now >= window.end {
            break;
        }
    }
    let used = clock::thread_cpu_time();
    report.cpu_ns = (used - began.unwrap_or(used)).0;
    report.gaps = gaps.longest();
    report.last = last.0;
    report
}

/// Keeps the longest pauses so far. Truncated only now and then: a sort per pause would disturb the load.
#[derive(Default)]
struct Gaps(Vec<Gap>);

impl Gaps {
    fn add(&mut self, gap: Gap) {
        self.0.push(gap);
        if self.0.len() >= 8 * KEPT {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        self.0.sort_by_key(|gap| std::cmp::Reverse(gap.length()));
        self.0.truncate(KEPT);
    }

    fn longest(mut self) -> Vec<Gap> {
        self.shorten();
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pauses_are_kept() {
        let mut gaps = Gaps::default();
        for length in 0..2000_u64 {
            gaps.add(Gap { from: 10_000, to: 10_000 + (length * 7919) % 2000 });
        }
        let kept: Vec<u64> = gaps.longest().into_iter().map(|gap| gap.length().0).collect();
        assert_eq!(kept, (0..KEPT as u64).map(|k| 1999 - k).collect::<Vec<_>>());
    }

    #[test]
    fn a_moment_falls_into_a_pause_or_not() {
        let gaps = vec![Gap { from: 100, to: 350 }, Gap { from: 500, to: 600 }];
        let report = HogReport { gaps, ..HogReport::default() };
        assert_eq!(report.ran_after(Ns(120)), Ns(230));
        assert_eq!(report.ran_after(Ns(400)), Ns::ZERO);
        assert_eq!(report.longest_after(Ns(400)), Some(Gap { from: 500, to: 600 }));
        assert_eq!(report.longest_after(Ns(700)), None);
    }
}
