//! What a wait brought.

use crate::EventId;
use crate::worker::{Fired, Worker};
use heddle_sys::epoll::{BROKEN, READ, WRITE};
use std::cell::Cell;

/// The events of a [`Worker::wait`]. Those that nobody looks at are told again.
pub struct Batch<'a> {
    worker: &'a Worker,
    next: usize,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(worker: &'a Worker) -> Batch<'a> {
        Batch { worker, next: 0 }
    }

    /// How many events there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.worker.seat.fired.len()
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> Iterator for Batch<'a> {
    type Item = Event<'a>;

    #[inline]
    fn next(&mut self) -> Option<Event<'a>> {
        let at = self.next;
        self.next += 1;
        let fired = self.worker.seat.fired.get(at)?;
        Some(Event { worker: self.worker, at, fired, drained: Cell::new(false) })
    }
}

/// An event that is this thread's until it is dropped: nobody else is told of the same registration before. A level-triggered one is, unless
/// it was [`drained`](Event::drained), until the thread's next wait.
pub struct Event<'a> {
    worker: &'a Worker,
    at: usize,
    fired: &'a Fired,
    drained: Cell<bool>,
}

impl Event<'_> {
    /// What it was registered with.
    #[inline]
    #[must_use]
    pub fn token(&self) -> u64 {
        self.fired.token
    }

    /// Its registration.
    #[inline]
    #[must_use]
    pub fn id(&self) -> EventId {
        self.fired.id
    }

    /// Whether there is something to read, an end or an error included.
    #[inline]
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.fired.ready & (READ | BROKEN) != 0
    }

    /// Whether there is room to write, or an error to see.
    #[inline]
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.fired.ready & (WRITE | BROKEN) != 0
    }

    /// Whether the descriptor failed or was hung up.
    #[inline]
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.fired.ready & BROKEN != 0
    }

    /// What a timer, signal or other source counted.
    #[inline]
    #[must_use]
    pub fn data(&self) -> u64 {
        self.fired.data
    }

    /// Says that a read or write would block now (`WouldBlock`; a short read is not enough, for the end of a stream may stand behind
    /// it): spares the look whether a level-triggered descriptor is still ready, and lets go of it at once.
    #[inline]
    pub fn drained(&self) {
        self.drained.set(true);
    }
}

impl Drop for Event<'_> {
    #[inline]
    fn drop(&mut self) {
        self.worker.release(self.at, self.fired, self.drained.get());
    }
}
