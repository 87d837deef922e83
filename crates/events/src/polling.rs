//! The shape of the [`polling`](https://docs.rs/polling/3) crate, version 3, over an event queue: programs that are written for it need
//! another `use` line, and then several threads may wait on one [`Poller`].
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
//! # What is as there
//!
//! Interest is told once: after an event its source is told no more until [`Poller::modify`] asks again. So nobody else has a source that
//! a thread has been told of, and E1 holds until the program asks again. An interest that is ready when it is asked for is told.
//! [`Poller::notify`] wakes one wait, the present or the next.
//!
//! # What is different
//!
//! - `polling` lets one thread wait at a time. Here every thread that waits is a worker of the queue, from its first
//!   [`Poller::wait`] until it ends or calls [`Poller::leave`], and the policy decides who is told what.
//! - A thread that has waited is expected to wait again soon: what happens meanwhile may be put into its lane, where an idle thread finds
//!   it only under a policy that steals or places by load. A thread that is to do something else for long calls [`Poller::leave`].
//! - There are no level- or edge-triggered modes ([`Poller::supports_level`] says so); what the queue itself has is better suited.
//! - `add` is not `unsafe`: a source that is closed without [`Poller::delete`] is told no more, and its number is taken until then.
//!
//! # What it is not
//!
//! A way to share the descriptors of a program that has one loop a thread, each with a `Poller` of its own: such a loop looks up what it is
//! told in tables of its own thread, which another's events are not in. No library that is slipped under such a program (`LD_PRELOAD`)
//! can change that; the program has to give its threads one poller, as memcached was changed for SKQ.

use crate::{EventError, EventId, EventOptions, EventQueue, Interest, Worker};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

/// What is asked of a source, and what is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What the program calls the source.
    pub key: usize,
    /// There is something to read, an end or an error included.
    pub readable: bool,
    /// There is room to write, or an error to see.
    pub writable: bool,
}

impl Event {
    /// An interest, from its parts.
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

    /// No interest: the source stays registered and is not told.
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

/// Events that waits have brought, in their order.
#[derive(Clone, Debug, Default)]
pub struct Events(Vec<Event>);

impl Events {
    /// An empty list.
    #[must_use]
    pub fn new() -> Events {
        Events::default()
    }

    /// An empty list with room.
    #[must_use]
    pub fn with_capacity(capacity: NonZeroUsize) -> Events {
        Events(Vec::with_capacity(capacity.get()))
    }

    /// The events.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets them: [`Poller::wait`] does not.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Waits for events, in as many threads as call it.
pub struct Poller {
    queue: EventQueue,
    sources: RwLock<HashMap<RawFd, Source>>,
    bell: EventId,
    /// Workers in the threads' own memory belong to this poller as long as it lives.
    alive: Arc<()>,
}

#[derive(Clone, Copy)]
struct Source {
    id: EventId,
    asked: Event,
    /// For what the descriptor is registered: changing that costs more than asking again.
    registered: Interest,
}

thread_local! {
    /// The workers that this thread is, one for each poller that it has waited on.
    static WORKERS: RefCell<Vec<(Weak<()>, Worker)>> = const { RefCell::new(Vec::new()) };
}

impl Poller {
    /// A poller on a queue of the default policy, [`crate::DEFAULT_POLICY`].
    ///
    /// # Errors
    /// None with the defaults as they are.
    pub fn new() -> io::Result<Poller> {
        Poller::on(EventQueue::new().map_err(plain)?)
    }

    /// A poller on a queue of your choice: policy, room for sources. The queue is the poller's from now on, and closed with it.
    ///
    /// # Errors
    /// The queue is closed or full.
    pub fn on(queue: EventQueue) -> io::Result<Poller> {
        let bell = queue.register_user(0, EventOptions::default()).map_err(plain)?;
        Ok(Poller { queue, sources: RwLock::default(), bell, alive: Arc::default() })
    }

    /// The queue, for its policy and what it tells of itself.
    #[must_use]
    pub fn queue(&self) -> &EventQueue {
        &self.queue
    }

    /// False: interest is told once.
    #[must_use]
    pub fn supports_level(&self) -> bool {
        false
    }

    /// False: interest is told once.
    #[must_use]
    pub fn supports_edge(&self) -> bool {
        false
    }

    /// Adds a source, which has to be in non-blocking mode. To be deleted before it is closed.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`]; the system's.
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

    /// Asks for the next event of a source, or for others, or under another key.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]; the system's.
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

    /// Removes a source. When this returns no thread is told of it any more.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`].
    pub fn delete(&self, source: &impl AsRawFd) -> io::Result<()> {
        let mut sources = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        let source = sources.remove(&source.as_raw_fd()).ok_or(io::ErrorKind::NotFound)?;
        self.queue.deregister(source.id).map_err(plain)
    }

    /// Waits for events, for ever without a timeout, and adds them to `events`; how many. None if the time is over, a signal came, or
    /// somebody called [`Poller::notify`].
    ///
    /// # Errors
    /// No descriptors left for another thread; the queue was closed.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        let before = events.len();
        WORKERS.with_borrow_mut(|workers| {
            let worker = self.worker(workers)?;
            loop {
                let (mut told, mut is_over) = (0, false);
                for event in worker.wait(timeout).map_err(plain)? {
                    told += 1;
                    if event.id() == self.bell {
                        is_over = true;
                        continue;
                    }
                    // Whether it is ready still is looked at when it is asked for anew.
                    event.drained();
                    events.0.extend(self.known(&event));
                }
                // What was deleted meanwhile is not worth coming back for.
                if is_over || told == 0 || events.len() > before {
                    return Ok(events.len() - before);
                }
            }
        })
    }

    /// What the program knows of an event, if it does.
    fn known(&self, event: &crate::Event<'_>) -> Option<Event> {
        let sources = self.sources.read().unwrap_or_else(PoisonError::into_inner);
        let source = sources.get(&(event.token() as RawFd)).filter(|one| one.id == event.id())?;
        let readable = source.asked.readable && event.is_readable();
        let writable = source.asked.writable && event.is_writable();
        Some(Event::new(source.asked.key, readable, writable))
    }

    /// This thread's worker.
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

    /// Has one wait come back, that of a thread that waits now or else the next.
    ///
    /// # Errors
    /// The queue was closed.
    pub fn notify(&self) -> io::Result<()> {
        self.queue.trigger(self.bell).map_err(plain)
    }

    /// The calling thread will not wait for some time: what it might have been told goes to others.
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
        // Workers of other threads end with those, or when they wait on another poller first.
        let _ = WORKERS.try_with(|workers| {
            if let Ok(mut workers) = workers.try_borrow_mut() {
                workers
                    .retain(|(poller, _)| !std::ptr::eq(poller.as_ptr(), Arc::as_ptr(&self.alive)));
            }
        });
    }
}

/// As the system would say it.
fn plain(error: EventError) -> io::Error {
    match error {
        EventError::System { source, .. } => source,
        EventError::Registered(_) => io::ErrorKind::AlreadyExists.into(),
        other => io::Error::other(other),
    }
}
