//! What a connection waits for, and since when.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use super::{Bounds, Limit};

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Waits {
    /// The next request.
    Idle,
    /// The rest of a request.
    Request,
    /// Room for its replies.
    Reply,
    /// The client's end of a connection that the server has ended.
    Linger,
}

const ALL: [Waits; 4] = [Waits::Idle, Waits::Request, Waits::Reply, Waits::Linger];
const WHAT: u64 = 3;
/// It waits for nothing: its handler works.
const WORKS: u64 = 4;
/// Above the bits: counts what has moved.
const MOVED: u64 = 8;

/// One connection's word. Its handler writes it, the sweep reads it.
#[derive(Debug, Default)]
pub(in crate::server) struct Watch {
    turn: AtomicU64,
    /// The limit that it has hit, plus one.
    hit: AtomicU8,
}

impl Watch {
    /// It waits for `what`; if it did so before, since then.
    #[inline]
    pub(in crate::server) fn waits(&self, what: Waits) {
        let turn = self.turn.load(Ordering::Relaxed);
        if turn & WHAT == what as u64 {
            self.turn.store(turn & !WORKS, Ordering::Relaxed);
        } else {
            self.moves(what);
        }
    }

    /// It waits for `what` from now on, since something has moved.
    #[inline]
    pub(in crate::server) fn moves(&self, what: Waits) {
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store((turn & !(MOVED - 1)).wrapping_add(MOVED) | what as u64, Ordering::Relaxed);
    }

    /// It waits for nothing until it says so.
    #[inline]
    pub(in crate::server) fn works(&self) {
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn | WORKS, Ordering::Relaxed);
    }

    /// The limit for which the sweep has ended it.
    pub(in crate::server) fn hit(&self) -> Option<Limit> {
        let hit = self.hit.load(Ordering::Acquire);
        Limit::ALL.get(usize::from(hit).checked_sub(1)?).copied()
    }
}

/// A connection as the sweep saw it last.
#[derive(Debug, Default)]
pub(in crate::server) struct Seen {
    turn: u64,
    since: Option<Instant>,
}

impl Seen {
    /// The limit that the connection hits at `now`, if one; it is counted, and the connection learns of it.
    pub(in crate::server) fn look(
        &mut self,
        watch: &Watch,
        now: Instant,
        bounds: &Bounds,
    ) -> Option<Limit> {
        let turn = watch.turn.load(Ordering::Relaxed);
        if self.turn != turn & !WORKS || self.since.is_none() {
            *self = Seen { turn: turn & !WORKS, since: Some(now) };
        }
        let (limit, patience) = match ALL[(turn & WHAT) as usize] {
            Waits::Idle => (Limit::Idle, bounds.limits.idle),
            Waits::Request => (Limit::Request, bounds.limits.request),
            Waits::Reply => (Limit::Reply, bounds.limits.idle),
            Waits::Linger => (Limit::Linger, bounds.limits.linger),
        };
        let waited = now.saturating_duration_since(self.since?);
        if turn & WORKS != 0 || waited < patience {
            return None;
        }
        // Whoever does not go is counted again only after as much time.
        self.since = Some(now);
        bounds.hit(limit);
        watch.hit.store(limit as u8 + 1, Ordering::Release);
        Some(limit)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::ClientLimits;
    use super::*;

    /// At a second, after this has happened.
    type Moment<'a> = (u64, &'a dyn Fn(&Watch));

    /// What a sweep says at each moment.
    fn sweeps<const N: usize>(script: [Moment<'_>; N]) -> [Option<Limit>; N] {
        let limits = ClientLimits {
            request: Duration::from_secs(10),
            idle: Duration::from_secs(100),
            linger: Duration::from_secs(5),
            ..ClientLimits::default()
        };
        let (bounds, start) = (Bounds::new(limits, 1), Instant::now());
        let (watch, mut seen) = (Watch::default(), Seen::default());
        script.map(|(second, happens)| {
            happens(&watch);
            seen.look(&watch, start + Duration::from_secs(second), &bounds)
        })
    }

    #[test]
    fn a_request_has_its_time_however_its_bytes_come() {
        let byte = |watch: &Watch| {
            watch.works();
            watch.waits(Waits::Request);
        };
        let said = sweeps([(0, &|_| ()), (50, &byte), (55, &byte), (60, &byte)]);
        assert_eq!(said, [None, None, None, Some(Limit::Request)]);
    }

    #[test]
    fn whoever_is_answered_begins_anew() {
        let request = |watch: &Watch| watch.waits(Waits::Request);
        let answer = |watch: &Watch| {
            watch.moves(Waits::Reply);
            watch.waits(Waits::Request);
        };
        assert_eq!(sweeps([(0, &request), (9, &answer), (18, &answer)]), [None; 3]);
    }

    #[test]
    fn whoever_works_is_not_at_fault() {
        let works = |watch: &Watch| watch.works();
        let said = sweeps([(0, &|w| w.waits(Waits::Request)), (5, &works), (500, &works)]);
        assert_eq!(said, [None; 3]);
    }

    #[test]
    fn each_wait_has_its_limit() {
        for (what, last, limit) in [
            (Waits::Idle, 100, Limit::Idle),
            (Waits::Request, 10, Limit::Request),
            (Waits::Reply, 100, Limit::Reply),
            (Waits::Linger, 5, Limit::Linger),
        ] {
            let begin = |watch: &Watch| watch.moves(what);
            let said =
                sweeps([(0, &begin), (last - 1, &|_| ()), (last, &|_| ()), (last + 1, &|_| ())]);
            assert_eq!(said, [None, None, Some(limit), None], "{what:?}");
        }
    }
}
