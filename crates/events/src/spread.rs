//! With how many workers besides its home a descriptor is registered.
//!
//! A peer's registration lets the kernel give an event to a parked worker while home is busy. If no worker is
//! ever parked, it gains nothing and every activation pays for it: 14 % of the throughput of saturated pipes
//! in trials. So each worker measures in windows how much of its time it was parked, and from all of these
//! follows a *level* for the whole queue: no peers while no worker is idle; one if events are short; all if
//! they are long, because then an extra step costs little and one busy peer is no help. Descriptors follow
//! the level at their next release, a few in each window.

use crate::port::Port;
use crate::window::WINDOW;
use crate::workers::WorkerSet;
use heddle_core::Ns;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The most workers besides its home with which a descriptor is registered: each costs a step of every
/// activation while all are busy.
pub(crate) const MOST_PEERS: u32 = 7;
/// The most descriptors that a worker registers anew in a window: a hundredth of its time.
pub(crate) const CHANGES: u32 = 32;
/// Peers begin when workers are parked for the first part of their time, and end below the second, in
/// thousandths.
const IDLE_ON: u32 = 50;
const IDLE_OFF: u32 = 20;
/// All peers if events take the first time on average, and one below the second: from there on a worker is
/// given one event at a time.
const LONG: Ns = Ns::from_us(10);
const SHORT: Ns = Ns::from_us(7);
/// How many consecutive windows have to call for another level.
const AGREED: u32 = 3;
/// What was measured over all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// The part of their time that workers were parked, in thousandths.
    pub idle: u32,
    /// The average duration of an event; zero if it is unknown.
    pub average: Ns,
}

/// The level, with its history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    now: u32,
    wanted: u32,
    agreed: u32,
}

impl Default for Level {
    /// One peer, until something is known.
    fn default() -> Self {
        Level { now: 1, wanted: 1, agreed: 0 }
    }
}

impl Level {
    /// Returns the level after one more window.
    pub fn after(&mut self, load: Load) -> u32 {
        let wanted = self.wants(load);
        self.agreed = if wanted == self.wanted { self.agreed + 1 } else { 1 };
        self.wanted = wanted;
        if self.agreed >= AGREED {
            self.now = wanted;
        }
        self.now
    }

    fn wants(&self, load: Load) -> u32 {
        let idle = if self.now == 0 { IDLE_ON } else { IDLE_OFF };
        if load.idle < idle {
            return 0;
        }
        let long = if self.now > 1 { SHORT } else { LONG };
        if load.average >= long { MOST_PEERS } else { 1 }
    }
}

/// The level of a queue.
#[derive(Debug)]
pub(crate) struct Spread {
    level: AtomicU32,
    judge: Mutex<(Ns, Level)>,
}

impl Default for Spread {
    fn default() -> Self {
        let level = Level::default();
        Spread { level: AtomicU32::new(level.now), judge: Mutex::new((Ns::ZERO, level)) }
    }
}

impl Spread {
    /// Returns with how many peers a descriptor should be registered, if it may have that many.
    pub fn level(&self) -> u32 {
        self.level.load(Relaxed)
    }

    /// A worker has ended a window at `now`. Once per window one of the workers updates the level for all.
    pub fn judge(&self, now: Ns, workers: &WorkerSet) {
        let Ok(mut judge) = self.judge.try_lock() else { return };
        if now.0 < judge.0.0.saturating_add(WINDOW.0) {
            return;
        }
        judge.0 = now;
        let level = judge.1.after(load(now, &workers.ports));
        self.level.store(level, Relaxed);
    }
}

fn load(now: Ns, ports: &[Arc<Port>]) -> Load {
    let idle: u32 = ports.iter().map(|port| port.figures.idle(now)).sum();
    let averages = ports.iter().map(|port| port.figures.turn.average().0).filter(|&a| a > 0);
    let (sum, n) = averages.fold((0, 0), |(sum, n), average| (sum + average, n + 1));
    let n = u64::max(n, 1);
    Load { idle: idle / ports.len().max(1) as u32, average: Ns(sum / n) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn load(idle: u32, us: u64) -> Load {
        Load { idle, average: Ns::from_us(us) }
    }

    fn settled(level: &mut Level, load: Load) -> u32 {
        (0..AGREED).map(|_| level.after(load)).last().unwrap()
    }

    #[test]
    fn peers_end_when_no_worker_idles_and_return_when_one_does() {
        let mut level = Level::default();
        assert_eq!(
            (level.after(load(0, 5)), level.after(load(0, 5)), level.after(load(0, 5))),
            (1, 1, 0)
        );
        assert_eq!(settled(&mut level, load(IDLE_ON - 1, 5)), 0);
        assert_eq!(settled(&mut level, load(IDLE_ON, 5)), 1);
        assert_eq!(settled(&mut level, load(IDLE_OFF, 5)), 1);
        assert_eq!(settled(&mut level, load(IDLE_OFF - 1, 5)), 0);
    }

    #[test]
    fn long_events_have_all_peers() {
        let mut level = Level::default();
        assert_eq!(settled(&mut level, load(300, 9)), 1);
        assert_eq!(settled(&mut level, load(300, 10)), MOST_PEERS);
        assert_eq!(settled(&mut level, load(300, 7)), MOST_PEERS);
        assert_eq!(settled(&mut level, load(300, 6)), 1);
        assert_eq!(settled(&mut level, load(0, 2_000)), 0);
    }

    proptest! {
        /// Whatever is measured, the level stays for as many windows as have to agree on another one.
        #[test]
        fn the_level_does_not_flap(loads in proptest::collection::vec((0u32..=1000, 0u64..40), 1..200)) {
            let (mut level, mut before, mut since) = (Level::default(), 1, AGREED);
            for (idle, us) in loads {
                let now = level.after(load(idle, us));
                prop_assert!(now <= MOST_PEERS);
                if now != before {
                    prop_assert!(since >= AGREED, "changed after {since} windows");
                    since = 0;
                }
                (before, since) = (now, since + 1);
            }
        }
    }
}
