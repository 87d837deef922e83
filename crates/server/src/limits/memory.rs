//! Accounting of the bytes that connections hold. A connection has a private allowance and draws on the
//! shared account for more, in large pieces, so that most requests touch no shared state.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Bounds, ClientLimits, Limit};

/// Bytes drawn at a time.
const PIECE: usize = 64 << 10;
/// Reply-buffer memory that is kept after the replies are written.
const KEPT: usize = 4 << 10;

/// Bytes drawn by all connections.
#[derive(Debug, Default)]
pub(super) struct Total(AtomicUsize);

impl Total {
    fn draw(&self, bytes: usize, most: usize) -> bool {
        let fits = |now: usize| now.checked_add(bytes).filter(|sum| *sum <= most);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

/// The bytes held by a connection or datagram; returned when dropped.
pub(crate) struct Reservation {
    bounds: Arc<Bounds>,
    /// Bytes that it may hold without drawing.
    own: usize,
    drawn: usize,
    input: usize,
}

impl Reservation {
    /// A reservation for a connection.
    pub(crate) fn new(bounds: &Arc<Bounds>) -> Reservation {
        Reservation::with(bounds, ClientLimits::OWN.min(bounds.limits.connection_memory))
    }

    /// A reservation that may hold `own` bytes without drawing.
    pub(crate) fn with(bounds: &Arc<Bounds>, own: usize) -> Reservation {
        Reservation { bounds: bounds.clone(), own, drawn: 0, input: 0 }
    }

    /// Holds `bytes` of requests. On failure, counts and returns the limit that was hit.
    #[inline]
    pub(crate) fn input(&mut self, bytes: usize) -> Result<(), Limit> {
        self.input = bytes;
        self.reply(0)
    }

    /// Holds `bytes` of replies in addition to the requests.
    #[inline]
    pub(crate) fn reply(&mut self, bytes: usize) -> Result<(), Limit> {
        let all = self.input + bytes;
        if all <= self.own + self.drawn { Ok(()) } else { self.draw(all) }
    }

    #[cold]
    fn draw(&mut self, all: usize) -> Result<(), Limit> {
        let limits = &self.bounds.limits;
        let now = self.own + self.drawn;
        let most = limits.connection_memory.saturating_sub(now);
        let more = (all - now).next_multiple_of(PIECE).min(most);
        let limit = if all > limits.connection_memory {
            Limit::ConnectionMemory
        } else if self.bounds.held.draw(more, limits.memory) {
            self.drawn += more;
            return Ok(());
        } else {
            Limit::Memory
        };
        self.bounds.hit(limit);
        Err(limit)
    }

    /// Called before a wait: frees the buffers of written replies, and returns what is no longer held.
    pub(crate) fn settle(&mut self, input: usize, replies: &mut Vec<u8>) {
        if replies.is_empty() && replies.capacity() > KEPT {
            *replies = Vec::new();
        }
        self.input = input;
        let all = input + replies.capacity();
        let needed = all.saturating_sub(self.own).next_multiple_of(PIECE);
        if needed < self.drawn {
            self.bounds.held.0.fetch_sub(self.drawn - needed, Ordering::Relaxed);
            self.drawn = needed;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.bounds.held.0.fetch_sub(self.drawn, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_proto::resp::{Limits, Reader};

    fn bounds(memory: usize, connection_memory: usize) -> Arc<Bounds> {
        Bounds::new(ClientLimits { memory, connection_memory, ..ClientLimits::default() }, 1)
    }

    /// A connection's allowance is for requests and replies, not for an empty buffer.
    #[test]
    fn an_empty_buffer_leaves_room_for_short_requests() {
        let mut reader = Reader::new(Limits::default());
        reader.push(&b"PING\r\n\r\n".repeat(ClientLimits::OWN / 8));
        while reader.next_request().unwrap().is_some() {}
        reader.settle();
        assert!(reader.held() <= ClientLimits::OWN / 2, "{}", reader.held());
    }

    #[test]
    fn all_together_hold_at_most_the_total_and_each_its_own() {
        let bounds = bounds(4 * PIECE, 1 << 30);
        let mut greedy = Reservation::new(&bounds);
        assert_eq!(greedy.input(ClientLimits::OWN + 4 * PIECE), Ok(()));
        let mut other = Reservation::new(&bounds);
        assert_eq!(other.input(ClientLimits::OWN), Ok(()));
        assert_eq!(other.reply(1), Err(Limit::Memory));
        greedy.settle(ClientLimits::OWN + PIECE, &mut Vec::new());
        assert_eq!(other.reply(3 * PIECE), Ok(()));
        assert_eq!(other.reply(3 * PIECE + 1), Err(Limit::Memory));
        drop(greedy);
        assert_eq!(other.reply(4 * PIECE), Ok(()));
        drop(other);
        assert_eq!(bounds.held.0.load(Ordering::Relaxed), 0);
        assert_eq!(bounds.hits(Limit::Memory), 2);
    }

    #[test]
    fn one_connection_holds_no_more_than_its_limit() {
        let bounds = bounds(1 << 30, 100_000);
        let mut one = Reservation::new(&bounds);
        assert_eq!(one.input(60_000), Ok(()));
        assert_eq!(one.reply(40_000), Ok(()));
        assert_eq!(one.reply(40_001), Err(Limit::ConnectionMemory));
    }

    #[test]
    fn written_replies_are_freed() {
        let bounds = bounds(1 << 30, 1 << 30);
        let mut one = Reservation::new(&bounds);
        let mut replies = Vec::with_capacity(10 * PIECE);
        assert_eq!(one.reply(10 * PIECE), Ok(()));
        one.settle(0, &mut replies);
        assert_eq!((replies.capacity(), one.drawn), (0, 0));
    }
}
