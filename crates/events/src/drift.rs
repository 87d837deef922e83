//! Where the policy places an event whose home is elsewhere.

use crate::ids::NONE;
use heddle_core::Ns;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// An event moves after this many consecutive placements into the same run queue away from home.
const AWAY: u32 = 8;
/// An event stays at a home at least this long.
const STAY: Ns = Ns::from_ms(100);

/// Where the policy places an event whose home is elsewhere, and what its registrations follow. Part of the
/// slot.
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

/// Packs what registrations follow into a word: the worker set and the level of peers.
pub(crate) fn goal(epoch: u64, level: u32) -> u64 {
    epoch << 8 | u64::from(level)
}

impl Drift {
    /// Starts anew for another event in the slot.
    pub fn begin(&self) {
        self.follows.store(0, Relaxed);
        self.times.store(0, Relaxed);
    }

    /// The event was put into the run queue of port `to`; `is_home` if that is its home. Called only by the
    /// thread that puts it there.
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

    /// Whether the event was placed elsewhere so often that it should be considered for a move.
    pub fn is_away(&self) -> bool {
        self.times.load(Relaxed) >= AWAY
    }

    /// Returns the port to which the event moves now, if it has been at home for long enough.
    pub fn moves(&self, now: Ns) -> Option<u32> {
        self.times.store(0, Relaxed);
        // Wraps after seven weeks; one event then stays a little longer or shorter.
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

    #[test]
    fn an_event_moves_to_where_it_is_placed_but_not_too_often() {
        let drift = Drift::default();
        let away = |times: u32, to| (0..times).for_each(|_| drift.placed(to, false));
        away(AWAY - 1, 3);
        assert!(!drift.is_away());
        drift.placed(1, true);
        away(AWAY - 1, 3);
        drift.placed(4, false);
        assert!(!drift.is_away(), "not into the same queue");
        away(AWAY - 1, 4);
        assert!(drift.is_away());
        assert_eq!(drift.moves(STAY), Some(4));
        assert!(!drift.is_away());
        away(AWAY, 5);
        assert_eq!(drift.moves(STAY + STAY - Ns::from_ms(1)), None);
        away(AWAY, 5);
        assert_eq!(drift.moves(STAY + STAY), Some(5));
    }
}
