//! An adapter with the interface of the [`polling`](https://docs.rs/polling/3) crate, version 3, over an
//! event queue. Programs written for that crate need another `use` line, and then several threads may wait on
//! one [`Poller`].
//!
//! ```
//! use heddle_events::polling::{Event, Events, Poller};
//! use std::io::Write as _;
//! use std::os::unix::net::UnixStream;
//!
//! # fn main() -> std::io::Result<()> {
//! let (mut client, server) = UnixStream::pair()?;
//! client.write_all(b"hello")?;
//!
//! let poller = Poller::new()?;
//! poller.add(&server, Event::readable(7))?;
//! let mut events = Events::new();
//! poller.wait(&mut events, None)?;
//! assert_eq!(events.iter().next().map(|event| event.key), Some(7));
//! // Read, answer; then ask for the next.
//! poller.modify(&server, Event::readable(7))?;
//! poller.delete(&server)?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is the same
//!
//! Interest is one-shot: after an event, its source is not reported again until [`Poller::modify`]. So no
//! other thread has a source that was reported to a thread, and E1 holds until the program asks again. An
//! interest that is ready when it is asked for is reported. [`Poller::notify`] wakes one wait, the current or
//! the next.
//!
//! # What is different
//!
//! - `polling` lets one thread wait at a time. Here every thread that waits is a worker of the queue, from
//!   its first [`Poller::wait`] until it ends or calls [`Poller::leave`], and the policy decides which thread
//!   gets which event.
//! - A thread that has waited is expected to wait again soon: events may be put into its run queue meanwhile,
//!   where an idle thread finds them only under a policy that steals or places by load. A thread that will do
//!   something else for long should call [`Poller::leave`].
//! - There are no level- or edge-triggered modes ([`Poller::supports_level`] returns false); use the queue
//!   itself for these.
//! - `add` is not `unsafe`: a source that is closed without [`Poller::delete`] is not reported any more, and
//!   its number stays taken until then.
//!
//! # What it is not
//!
//! It is not a way to share the descriptors of a program that has one loop per thread, each with its own
//! `Poller`: such a loop looks up its events in tables of its own thread, which do not contain another
//! thread's. No preloaded library (`LD_PRELOAD`) can change that. The program must give its threads one
//! poller, as memcached was changed for SKQ.

use crate::{EventError, EventId, EventOptions, EventQueue, Interest, Worker};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

/// An interest in a source, or an event of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The program's name for the source.
    pub key: usize,
    /// There is something to read, including an end or an error.
    pub readable: bool,
    /// There is room to write, or an error to report.
    pub writable: bool,
}

impl Event {
    /// Makes an interest from its parts.
    #[must_use]
    pub const fn new(key: usize, readable: bool, writable: bool) -> Event {
        Event { key, readable, writable }
    }

    /// Interest in both.
    #[must_use]
    pub const fn all(key: usize) -> Event {
        Event::new(key, true, true)
    }

    /// Interest in reading.
    #[must_use]
    pub const fn readable(key: usize) -> Event {
        Event::new(key, true, false)
    }

    /// Interest in writing.
    #[must_use]
    pub const fn writable(key: usize) -> Event {
        Event::new(key, false, true)
    }

    /// No interest: the source stays registered and is not reported.
    #[must_use]
    pub const fn none(key: usize) -> Event {
        Event::new(key, false, false)
    }

    fn interest(self) -> Option<Interest> {
        match (self.readable, self.writable) {
            (true, true) => Some(Interest::BOTH),
            (true, false) => Some(Interest::READ),
            (false, true) => Some(Interest::WRITE),
            (false, false) => None,
        }
    }
}

/// The events that waits have returned, in order.
#[derive(Clone, Debug, Default)]
pub struct Events(Vec<Event>);

impl Events {
    /// Makes an empty list.
    #[must_use]
    pub fn new() -> Events {
        Events::default()
    }

    /// Makes an empty list with room.
    #[must_use]
    pub fn with_capacity(capacity: NonZeroUsize) -> Events {
        Events(Vec::with_capacity(capacity.get()))
    }

    /// Returns the events.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.0.iter().copied()
    }

    /// Returns the number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all events, which [`Poller::wait`] does not.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Waits for events, in as many threads as call it.
pub struct Poller {
    queue: EventQueue,
    sources: RwLock<HashMap<RawFd, Source>>,
    bell: EventId,
    /// Workers in thread-local storage belong to this poller while it lives.
    alive: Arc<()>,
}

#[derive(Clone, Copy)]
struct Source {
    id: EventId,
    asked: Event,
    /// What the descriptor is registered for: changing that costs more than asking again.
    registered: Interest,
}

thread_local! {
    /// This thread's workers, one for each poller that it has waited on.
    static WORKERS: RefCell<Vec<(Weak<()>, Worker)>> = const { RefCell::new(Vec::new()) };
}

impl Poller {
    /// Makes a poller on a queue with the default policy, [`crate::DEFAULT_POLICY`].
    ///
    /// # Errors
    /// None with the current defaults.
    pub fn new() -> io::Result<Poller> {
        Poller::on(EventQueue::new().map_err(plain)?)
    }

    /// Makes a poller on `queue`. From now on the queue belongs to the poller and is closed with it.
    ///
    /// # Errors
    /// The queue is closed or full.
    pub fn on(queue: EventQueue) -> io::Result<Poller> {
        let bell = queue.register_user(0, EventOptions::default()).map_err(plain)?;
        Ok(Poller { queue, sources: RwLock::default(), bell, alive: Arc::default() })
    }

    /// Returns the queue, for its policy and statistics.
    #[must_use]
    pub fn queue(&self) -> &EventQueue {
        &self.queue
    }

    /// Returns false: interest is one-shot.
    #[must_use]
    pub fn supports_level(&self) -> bool {
        false
    }

    /// Returns false: interest is one-shot.
    #[must_use]
    pub fn supports_edge(&self) -> bool {
        false
    }

    /// Adds a source, which must be in non-blocking mode, and must be deleted before it is closed.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`]; errors of the system.
    pub fn add(&self, source: &impl AsRawFd, interest: Event) -> io::Result<()> {
        let mut sources = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        let fd = source.as_raw_fd();
        if sources.contains_key(&fd) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let registered = interest.interest().unwrap_or(Interest::READ);
        let options = EventOptions::default().dispatch();
        let options = if interest.interest().is_none() { options.off() } else { options };
        let id = self.queue.register(&fd, registered, fd as u64, options).map_err(plain)?;
        sources.insert(fd, Source { id, asked: interest, registered });
        Ok(())
    }

    /// Asks for the next event of a source, possibly with another interest or key.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]; errors of the system.
    pub fn modify(&self, source: &impl AsRawFd, interest: Event) -> io::Result<()> {
        let mut sources = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        let source = sources.get_mut(&source.as_raw_fd()).ok_or(io::ErrorKind::NotFound)?;
        let Some(wanted) = interest.interest() else {
            source.asked = interest;
            return self.queue.turn_off(source.id).map_err(plain);
        };
        if wanted != source.registered {
            self.queue.set_interest(source.id, wanted).map_err(plain)?;
            source.registered = wanted;
        }
        source.asked = interest;
        self.queue.turn_on(source.id).map_err(plain)
    }

    /// Removes a source. Once this returns, no thread gets its events any more.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`].
    pub fn delete(&self, source: &impl AsRawFd) -> io::Result<()> {
        let mut sources = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        let source = sources.remove(&source.as_raw_fd()).ok_or(io::ErrorKind::NotFound)?;
        self.queue.deregister(source.id).map_err(plain)
    }

    /// Waits for events, without limit if `timeout` is None, and appends them to `events`. Returns how many;
    /// 0 if the time is over, a signal came, or [`Poller::notify`] was called.
    ///
    /// # Errors
    /// No descriptors are left for another thread; the queue was closed.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        let before = events.len();
        WORKERS.with_borrow_mut(|workers| {
            let worker = self.worker(workers)?;
            loop {
                let (mut count, mut is_over) = (0, false);
                for event in worker.wait(timeout).map_err(plain)? {
                    count += 1;
                    if event.id() == self.bell {
                        is_over = true;
                        continue;
                    }
                    // Whether it is still ready is checked when it is asked for again.
                    event.drained();
                    events.0.extend(self.translate(&event));
                }
                // Sources that were deleted meanwhile are no reason to return.
                if is_over || count == 0 || events.len() > before {
                    return Ok(events.len() - before);
                }
            }
        })
    }

    /// Returns the event in the program's terms, if the source is registered.
    fn translate(&self, event: &crate::Event<'_>) -> Option<Event> {
        let sources = self.sources.read().unwrap_or_else(PoisonError::into_inner);
        let source = sources.get(&(event.token() as RawFd)).filter(|one| one.id == event.id())?;
        let readable = source.asked.readable && event.is_readable();
        let writable = source.asked.writable && event.is_writable();
        Some(Event::new(source.asked.key, readable, writable))
    }

    /// Returns this thread's worker.
    fn worker<'a>(&self, workers: &'a mut Vec<(Weak<()>, Worker)>) -> io::Result<&'a mut Worker> {
        let is_mine = |(poller, _): &(Weak<()>, Worker)| {
            std::ptr::eq(poller.as_ptr(), Arc::as_ptr(&self.alive))
        };
        let at = match workers.iter().position(is_mine) {
            Some(at) => at,
            None => {
                workers.retain(|(poller, _)| poller.strong_count() > 0);
                let worker = self.queue.worker().map_err(plain)?;
                workers.push((Arc::downgrade(&self.alive), worker));
                workers.len() - 1
            }
        };
        Ok(&mut workers[at].1)
    }

    /// Makes one wait return: that of a thread that is waiting, or else the next.
    ///
    /// # Errors
    /// The queue was closed.
    pub fn notify(&self) -> io::Result<()> {
        self.queue.trigger(self.bell).map_err(plain)
    }

    /// The calling thread will not wait for some time: events meant for it go to others.
    pub fn leave(&self) {
        let is_other = |(poller, _): &(Weak<()>, Worker)| {
            !std::ptr::eq(poller.as_ptr(), Arc::as_ptr(&self.alive))
        };
        WORKERS.with_borrow_mut(|workers| workers.retain(is_other));
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.queue.close();
        // Other threads' workers are dropped when those threads end or first wait on another poller.
        let _ = WORKERS.try_with(|workers| {
            if let Ok(mut workers) = workers.try_borrow_mut() {
                workers
                    .retain(|(poller, _)| !std::ptr::eq(poller.as_ptr(), Arc::as_ptr(&self.alive)));
            }
        });
    }
}

/// Converts to an error of the system.
fn plain(error: EventError) -> io::Error {
    match error {
        EventError::System { source, .. } => source,
        EventError::Registered(_) => io::ErrorKind::AlreadyExists.into(),
        other => io::Error::other(other),
    }
}
