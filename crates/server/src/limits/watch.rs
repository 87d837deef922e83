//! What a connection waits for, and since when.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use super::{Bounds, Limit};

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The next request.
    Idle,
    /// The rest of a request.
    Request,
    /// Room for its replies.
    Reply,
    /// The client to close a connection that the server has ended.
    Linger,
}

const ALL: [Waits; 4] = [Waits::Idle, Waits::Request, Waits::Reply, Waits::Linger];
const WHAT: u64 = 3;
/// Set while the handler works: the connection waits for nothing.
const WORKS: u64 = 4;
/// The bits from here up count progress.
const MOVED: u64 = 8;
/// The bits below hold the bytes of the current batch of replies; those from here up count batches.
const BATCH: u64 = 1 << 40;

/// The state of one connection: written by its handler, read by the sweep.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    turn: AtomicU64,
    /// The batch of replies that is being written.
    batch: AtomicU64,
    /// The limit that it has hit, plus one.
    hit: AtomicU8,
}

impl Watch {
    /// Waits for `what`; if it already did, the wait goes on.
    #[inline]
    pub(crate) fn waits(&self, what: Waits) {
        let turn = self.turn.load(Ordering::Relaxed);
        if turn & WHAT == what as u64 {
            self.turn.store(turn & !WORKS, Ordering::Relaxed);
        } else {
            self.moves(what);
        }
    }

    /// Waits for `what` from now on: there was progress.
    #[inline]
    pub(crate) fn moves(&self, what: Waits) {
        let turn = self.turn.load(Ordering::Relaxed);
        // Release: a reader that sees this sees the batch that started before it.
        self.turn.store((turn & !(MOVED - 1)).wrapping_add(MOVED) | what as u64, Ordering::Release);
    }

    /// Starts a batch of `bytes` of replies, which the client must read within its time.
    #[inline]
    pub(crate) fn begins(&self, bytes: usize) {
        let count = self.batch.load(Ordering::Relaxed) & !(BATCH - 1);
        let bytes = (bytes as u64).min(BATCH - 1);
        self.batch.store(count.wrapping_add(BATCH) | bytes, Ordering::Relaxed);
    }

    /// Waits for nothing until the next call.
    #[inline]
    pub(crate) fn works(&self) {
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn | WORKS, Ordering::Relaxed);
    }

    /// The limit for which the sweep has ended it.
    pub(crate) fn hit(&self) -> Option<Limit> {
        let hit = self.hit.load(Ordering::Acquire);
        Limit::ALL.get(usize::from(hit).checked_sub(1)?).copied()
    }

    /// Called before the socket is closed. Replies that the client did not read in time are dropped from the
    /// socket's buffer too, which would otherwise offer them for minutes: `reset_on_close` sees to it.
    pub(crate) fn give_up(&self, reset_on_close: impl FnOnce() -> io::Result<()>) {
        if matches!(self.hit(), Some(Limit::Reply | Limit::ReplyRate)) {
            // If that fails, the kernel gives up by itself, later.
            let _ = reset_on_close();
        }
    }
}

/// A connection as the last sweep saw it.
#[derive(Debug, Default)]
pub(crate) struct LastSweep {
    turn: u64,
    since: Option<Instant>,
    batch: u64,
    batch_since: Option<Instant>,
}

impl LastSweep {
    /// Returns the limit that the connection hits at `now`, if any; counts it and records it in `watch`.
    pub(crate) fn look(&mut self, watch: &Watch, now: Instant, bounds: &Bounds) -> Option<Limit> {
        let turn = watch.turn.load(Ordering::Acquire);
        if self.turn != turn & !WORKS || self.since.is_none() {
            (self.turn, self.since) = (turn & !WORKS, Some(now));
        }
        let batch = watch.batch.load(Ordering::Relaxed);
        if self.batch != batch || self.batch_since.is_none() {
            (self.batch, self.batch_since) = (batch, Some(now));
        }
        let (limit, patience) = match ALL[(turn & WHAT) as usize] {
            Waits::Idle => (Limit::Idle, bounds.limits.idle),
            Waits::Request => (Limit::Request, bounds.limits.request),
            Waits::Reply => (Limit::Reply, bounds.limits.idle),
            Waits::Linger => (Limit::Linger, bounds.limits.linger),
        };
        if turn & WORKS != 0 {
            return None;
        }
        let has_passed = |since: Instant, time| now.saturating_duration_since(since) >= time;
        let limit = if has_passed(self.since?, patience) {
            limit
        } else if limit == Limit::Reply
            && has_passed(self.batch_since?, bounds.limits.batch(batch & (BATCH - 1)))
        {
            Limit::ReplyRate
        } else {
            return None;
        };
        // A connection that stays is counted again only after as much time.
        (self.since, self.batch_since) = (Some(now), Some(now));
        bounds.hit(limit);
        watch.hit.store(limit as u8 + 1, Ordering::Release);
        Some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ClientLimits;
    use super::*;
    use std::time::Duration;

    /// A second, and what happens just before it.
    type Moment<'a> = (u64, &'a dyn Fn(&Watch));

    /// What a sweep returns at each moment.
    fn sweeps<const N: usize>(script: [Moment<'_>; N]) -> [Option<Limit>; N] {
        let limits = ClientLimits {
            request: Duration::from_secs(10),
            idle: Duration::from_secs(100),
            linger: Duration::from_secs(5),
            reply_rate: 1000,
            ..ClientLimits::default()
        };
        let (bounds, start) = (Bounds::new(limits, 1), Instant::now());
        let (watch, mut seen) = (Watch::default(), LastSweep::default());
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
    fn an_answer_restarts_the_time() {
        let request = |watch: &Watch| watch.waits(Waits::Request);
        let answer = |watch: &Watch| {
            watch.moves(Waits::Reply);
            watch.waits(Waits::Request);
        };
        assert_eq!(sweeps([(0, &request), (9, &answer), (18, &answer)]), [None; 3]);
    }

    #[test]
    fn a_working_handler_is_not_held_against_its_client() {
        let works = |watch: &Watch| watch.works();
        let said = sweeps([(0, &|w| w.waits(Waits::Request)), (5, &works), (500, &works)]);
        assert_eq!(said, [None; 3]);
    }

    #[test]
    fn replies_have_their_time_however_they_are_taken() {
        let begin = |watch: &Watch| {
            watch.begins(50_000);
            watch.moves(Waits::Reply);
        };
        let taken = |watch: &Watch| watch.moves(Waits::Reply);
        // The idle time, and one second for each thousand bytes.
        let slow = [(0, &begin as &dyn Fn(&Watch)), (90, &taken), (149, &taken), (150, &taken)];
        assert_eq!(sweeps(slow), [None, None, None, Some(Limit::ReplyRate)]);
        let next = |watch: &Watch| {
            watch.waits(Waits::Idle);
            begin(watch);
        };
        let quick = [
            (0, &begin as &dyn Fn(&Watch)),
            (90, &taken),
            (149, &next),
            (151, &taken),
            (239, &taken),
        ];
        assert_eq!(sweeps(quick), [None; 5]);
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
