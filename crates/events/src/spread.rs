//! How many threads beside its home a descriptor is registered with.
//!
//! A peer's registration lets the kernel give an event to a thread that is parked while home is busy. Where nobody is ever parked it gains
//! nothing and every activation pays for it: 14 % of the throughput of saturated pipes in trials. So it is measured, for each thread in
//! windows of time, how much of it was spent parked, and from all of these follows a *level* for the whole queue: no peers while nobody
//! idles; one where events are short; all where they are long, for then a step more costs little and a busy peer is no help. Descriptors
//! follow the level when they are released next, a few in each window.

use crate::port::Port;
use crate::roster::Roster;
use crate::slot::NONE;
use heddle_core::Ns;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// How many other threads a descriptor is registered with at most: each costs a step of every activation while all are busy.
pub(crate) const MOST_PEERS: u32 = 7;
/// Over how long it is measured how much a thread idles.
pub(crate) const WINDOW: Ns = Ns::from_ms(10);
/// How many descriptors a thread registers anew in a window, at most: a hundredth of its time.
pub(crate) const CHANGES: u32 = 32;
/// Peers begin where threads are parked this part of the time, and end below the other. In thousandths.
const IDLE_ON: u32 = 50;
const IDLE_OFF: u32 = 20;
/// All peers where events take this long on average, and one below the other: a thread is given one at a time from there on.
const LONG: Ns = Ns::from_us(10);
const SHORT: Ns = Ns::from_us(7);
/// How many windows on end have to want another level.
const AGREED: u32 = 3;
/// After how many placements away from home, on end and in the same lane, an event moves there.
const AWAY: u32 = 8;
/// How long an event stays at a home at least.
const STAY: Ns = Ns::from_ms(100);

/// How much of its time a thread was parked: the measure of one window.
#[derive(Debug, Default)]
pub(crate) struct Window {
    begin: Ns,
    parked: Ns,
}

impl Window {
    /// The thread was parked for `time`.
    pub fn parked(&mut self, time: Ns) {
        self.parked.0 += time.0;
    }

    /// At the end of the window, the thousandths of it for which the thread was parked; the next window begins.
    pub fn end(&mut self, now: Ns) -> Option<u32> {
        let length = now.0.saturating_sub(self.begin.0);
        if length < WINDOW.0 {
            return None;
        }
        let share = self.parked.0.min(length) as u128 * 1000 / u128::from(length);
        *self = Window { begin: now, parked: Ns::ZERO };
        Some(share as u32)
    }
}

/// What was measured of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Thousandths of the threads' time for which they were parked.
    pub idle: u32,
    /// How long an event takes on average; zero where it is not known.
    pub average: Ns,
}

/// The level, with its memory.
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
    /// The level after one more window.
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
    /// With how many peers a descriptor should be registered, if it may have so many.
    pub fn level(&self) -> u32 {
        self.level.load(Relaxed)
    }

    /// A thread has ended a window at `now`. Once in a window somebody judges for all.
    pub fn judge(&self, now: Ns, roster: &Roster) {
        let Ok(mut judge) = self.judge.try_lock() else { return };
        if now.0 < judge.0.0.saturating_add(WINDOW.0) {
            return;
        }
        judge.0 = now;
        let level = judge.1.after(load(now, &roster.ports));
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

/// Where the policy takes an event that has its home elsewhere, and for what its descriptor is registered. In its slot.
#[derive(Debug)]
pub(crate) struct Drift {
    /// The goal ([`goal`]) that the registrations follow.
    pub follows: AtomicU64,
    to: AtomicU32,
    times: AtomicU32,
    /// When the home changed last, in milliseconds.
    moved: AtomicU32,
}

impl Default for Drift {
    fn default() -> Self {
        Drift {
            follows: AtomicU64::new(0),
            to: AtomicU32::new(NONE),
            times: AtomicU32::new(0),
            moved: AtomicU32::new(0),
        }
    }
}

/// What registrations follow, in a word: the roster and the level.
pub(crate) fn goal(epoch: u64, level: u32) -> u64 {
    epoch << 8 | u64::from(level)
}

impl Drift {
    /// Another event begins in the slot.
    pub fn begin(&self) {
        self.follows.store(0, Relaxed);
        self.times.store(0, Relaxed);
    }

    /// The event was put into the lane of port `to`; `is_home` if it lives there. Only the thread that does so calls this.
    pub fn placed(&self, to: u32, is_home: bool) {
        if is_home {
            if self.times.load(Relaxed) != 0 {
                self.times.store(0, Relaxed);
            }
            return;
        }
        let times = if self.to.load(Relaxed) == to { self.times.load(Relaxed) } else { 0 };
        self.to.store(to, Relaxed);
        self.times.store(times + 1, Relaxed);
    }

    /// Whether the event was away so often that it should be asked whether it moves.
    pub fn is_away(&self) -> bool {
        self.times.load(Relaxed) >= AWAY
    }

    /// The port to which the event moves now, if it has been at home for long enough.
    pub fn moves(&self, now: Ns) -> Option<u32> {
        self.times.store(0, Relaxed);
        // Wraps after seven weeks; then one event stays a little longer or less.
        let now = (now.0 / 1_000_000) as u32;
        let since = now.wrapping_sub(self.moved.load(Relaxed));
        if u64::from(since) * 1_000_000 < STAY.0 {
            return None;
        }
        self.moved.store(now, Relaxed);
        Some(self.to.load(Relaxed))
    }
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
    fn a_window_says_what_part_of_it_was_idle() {
        let mut window = Window::default();
        assert_eq!(window.end(WINDOW), Some(0));
        window.parked(Ns(WINDOW.0 / 4));
        assert_eq!(window.end(Ns(WINDOW.0 * 2 - 1)), None);
        assert_eq!(window.end(Ns(WINDOW.0 * 2)), Some(250));
        // Parked since before the window began.
        window.parked(Ns(WINDOW.0 * 9));
        assert_eq!(window.end(Ns(WINDOW.0 * 3)), Some(1000));
    }

    #[test]
    fn peers_end_when_nobody_idles_and_come_back_when_somebody_does() {
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

    #[test]
    fn an_event_moves_to_where_it_is_put_and_not_too_often() {
        let drift = Drift::default();
        let away = |times: u32, to| (0..times).for_each(|_| drift.placed(to, false));
        away(AWAY - 1, 3);
        assert!(!drift.is_away());
        drift.placed(1, true);
        away(AWAY - 1, 3);
        drift.placed(4, false);
        assert!(!drift.is_away(), "not in the same lane");
        away(AWAY - 1, 4);
        assert!(drift.is_away());
        assert_eq!(drift.moves(STAY), Some(4));
        assert!(!drift.is_away());
        away(AWAY, 5);
        assert_eq!(drift.moves(STAY + STAY - Ns::from_ms(1)), None);
        away(AWAY, 5);
        assert_eq!(drift.moves(STAY + STAY), Some(5));
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

        /// The shares of all windows together are the time that was parked, to a thousandth of each window.
        #[test]
        fn no_parked_time_is_lost(parts in proptest::collection::vec((1u64..30_000_000, 0u64..100), 1..50)) {
            let (mut window, mut now) = (Window::default(), Ns::ZERO);
            for (time, percent) in parts {
                let parked = time * percent / 100;
                let begin = window.begin;
                window.parked(Ns(parked));
                now.0 += time;
                let sum = window.parked.0;
                if let Some(share) = window.end(now) {
                    let exact = sum as f64 / (now.0 - begin.0) as f64 * 1000.0;
                    prop_assert!((f64::from(share) - exact).abs() <= 1.0);
                }
            }
        }
    }
}
