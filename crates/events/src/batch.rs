//! The events that a wait returns.

use crate::EventError;
use crate::ids::EventId;
use crate::worker::Worker;
use crate::worker_state::{Fate, Fired};
use heddle_sys::epoll::{BROKEN, READ, WRITE};
use std::cell::Cell;
use std::time::Duration;

/// The events of a [`Worker::wait`]. Those that the program does not look at are reported again.
pub struct Batch<'a> {
    worker: &'a Worker,
    next: usize,
}

impl Worker {
    /// Releases the previous batch and waits for events, without limit if `timeout` is None. The batch is
    /// empty if the time is over or a signal came.
    ///
    /// # Errors
    /// [`EventError::Closed`], [`EventError::Forked`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Batch<'_>, EventError> {
        self.fill(timeout, Fate::Unseen)?;
        Ok(Batch { worker: self, next: 0 })
    }
}

impl Batch<'_> {
    /// Returns the number of events.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.worker.state.fired.len()
    }

    /// Whether there are no events.
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
        let fired = self.worker.state.fired.get(at)?;
        Some(Event { worker: self.worker, at, fired, drained: Cell::new(false) })
    }
}

/// An event that belongs to this thread until it is dropped: until then no thread is given another event of
/// the same registration. A level-triggered event stays this thread's until its next wait, unless it was
/// [`drained`](Event::drained).
pub struct Event<'a> {
    worker: &'a Worker,
    at: usize,
    fired: &'a Fired,
    drained: Cell<bool>,
}

impl Event<'_> {
    /// Returns the token that the event was registered with.
    #[inline]
    #[must_use]
    pub fn token(&self) -> u64 {
        self.fired.token
    }

    /// Returns the registration.
    #[inline]
    #[must_use]
    pub fn id(&self) -> EventId {
        self.fired.id
    }

    /// Whether there is something to read, including an end or an error.
    #[inline]
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.fired.ready & (READ | BROKEN) != 0
    }

    /// Whether there is room to write, or an error to report.
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

    /// Whether it is reported because nothing came within the event's idle limit
    /// ([`EventQueue::set_idle_limit`](crate::EventQueue::set_idle_limit)), and nothing has come since.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.fired.is_idle()
    }

    /// Returns what a timer, signal or other source counted.
    #[inline]
    #[must_use]
    pub fn data(&self) -> u64 {
        self.fired.data
    }

    /// Declares that a read or write would block now (`WouldBlock`; a short read is not enough, because the
    /// end of the stream may follow). Saves the check whether a level-triggered descriptor is still ready,
    /// and releases it at once.
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
