//! What programs register.

use crate::descriptors::Carriers;
use crate::error::system;
use crate::queue::EventQueue;
use crate::slot::{EventId, NONE, New, flag};
use crate::state::Next;
use crate::{EventError, Worker};
use heddle_core::Class;
use heddle_sys::epoll::{READ, WRITE};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;

/// What is asked of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(pub(crate) u32);

impl Interest {
    /// It can be read, or its peer has closed.
    pub const READ: Interest = Interest(READ);
    /// It can be written.
    pub const WRITE: Interest = Interest(WRITE);
    /// Both, told to one thread together.
    pub const BOTH: Interest = Interest(READ | WRITE);
}

/// How an event is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOptions {
    pub(crate) flags: u32,
    pub(crate) class: Class,
    pub(crate) off: bool,
    pub(crate) port: u32,
}

impl Default for EventOptions {
    /// Level-triggered, normal priority, for any thread.
    fn default() -> Self {
        EventOptions { flags: flag::LEVEL, class: Class::LC, off: false, port: NONE }
    }
}

impl EventOptions {
    fn with(self, flag: u32, on: bool) -> Self {
        EventOptions { flags: if on { self.flags | flag } else { self.flags & !flag }, ..self }
    }

    /// Told when the descriptor becomes ready or more comes, once, to one thread: the handler reads or writes until it would block. That
    /// spares a look at the descriptor after each event. Otherwise what is still ready when it is released is told again.
    #[must_use]
    pub fn edge(self) -> Self {
        self.with(flag::LEVEL, false)
    }

    /// High priority: told before others (SKQ, section 4.4).
    #[must_use]
    pub fn high(self) -> Self {
        self.with(flag::HIGH, true)
    }

    /// The registration ends when it was told once.
    #[must_use]
    pub fn once(self) -> Self {
        self.with(flag::ONCE, true)
    }

    /// Told once, then not until [`EventQueue::turn_on`].
    #[must_use]
    pub fn dispatch(self) -> Self {
        self.with(flag::DISPATCH, true)
    }

    /// Registered, but not told until [`EventQueue::turn_on`].
    #[must_use]
    pub fn off(self) -> Self {
        EventOptions { off: true, ..self }
    }

    /// Told to the thread of `worker` only (SKQ, section 4.4). If it leaves, the event is told to nobody, and changing it says
    /// [`EventError::PinnedThreadGone`].
    #[must_use]
    pub fn pin(self, worker: &Worker) -> Self {
        EventOptions { port: worker.port().number, ..self.with(flag::PINNED, true) }
    }

    /// What kind of work the event brings, for policies that care.
    #[must_use]
    pub fn class(self, class: Class) -> Self {
        EventOptions { class, ..self }
    }
}

fn no_descriptor() -> std::io::Error {
    rustix::io::Errno::BADF.into()
}

impl EventQueue {
    /// Registers a descriptor: `token` is told with its events. The descriptor stays the caller's; [`EventQueue::deregister`] before it is
    /// closed. If it was closed all the same and its number comes again, what was registered under it ends.
    ///
    /// # Errors
    /// [`EventError::Full`]; [`EventError::Registered`] in this queue already; [`EventError::PinnedThreadGone`]; the system's: not open.
    pub fn register(
        &self,
        fd: &impl AsRawFd,
        interest: Interest,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        self.0.check()?;
        let fd = fd.as_raw_fd();
        let mut carriers = self.0.descriptors.lock(fd);
        if let Some(&old) = carriers.get(&fd) {
            if !self.0.is_stale(old)? {
                return Err(EventError::Registered(fd));
            }
            self.0.discard(old, fd, &mut carriers);
        }
        let id = self.begin_on(fd, interest, token, options)?;
        match self.0.watch(id) {
            Ok(true) => {}
            Ok(false) => self.is_always_ready(id, interest),
            Err(error) => {
                self.0.end_unwatched(id);
                return Err(error);
            }
        }
        carriers.insert(fd, id);
        Ok(id)
    }

    /// Registers a second event on the descriptor of `first`, with options, a token and a life of its own: one thread may read while
    /// another writes. A descriptor has two at most.
    ///
    /// # Errors
    /// [`EventError::Full`]; [`EventError::Ended`] if `first` has; [`EventError::Registered`] if the descriptor has two events already;
    /// the system's: `first` has no descriptor, or it was closed.
    pub fn register_beside(
        &self,
        first: EventId,
        interest: Interest,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        self.0.check()?;
        let fd = self.0.table.alive(first)?.fd.load(Relaxed);
        if fd < 0 {
            return Err(system("watch what has no descriptor")(no_descriptor()));
        }
        let _carriers = self.0.descriptors.lock(fd);
        let slot = self.0.table.alive(first)?;
        if slot.first.load(Relaxed) != NONE || slot.second.load(Relaxed) != NONE {
            return Err(EventError::Registered(fd));
        }
        let id = self.begin_on(fd, interest, token, options)?;
        self.0.table.slot(id.index).first.store(first.index, Relaxed);
        slot.second.store(id.index, Relaxed);
        if slot.has(flag::ALWAYS) {
            self.is_always_ready(id, interest);
        } else if let Err(error) = self.0.rewatch_carrier(first) {
            self.0.part(id);
            self.0.end_unwatched(id);
            return Err(error);
        }
        Ok(id)
    }

    fn begin_on(
        &self,
        fd: RawFd,
        interest: Interest,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        let socket = if heddle_sys::socket::incoming_cpu(fd).is_some() { flag::SOCKET } else { 0 };
        let flags = options.flags | socket;
        let EventOptions { class, off, port, .. } = options;
        self.begin(&New { token, flags, wants: interest.0, fd, class, off }, port)
    }

    /// Files of a disk are ready whenever they are asked for, and the system does not watch them.
    fn is_always_ready(&self, id: EventId, interest: Interest) {
        let slot = self.0.table.slot(id.index);
        slot.flags.fetch_or(flag::ALWAYS | flag::LEVEL, Relaxed);
        self.activate(id, interest.0);
    }

    /// An event that happens when [`EventQueue::trigger`] says so.
    ///
    /// # Errors
    /// [`EventError::Full`].
    pub fn register_user(&self, token: u64, options: EventOptions) -> Result<EventId, EventError> {
        self.0.check()?;
        let new = New {
            token,
            flags: options.flags & !flag::LEVEL,
            wants: 0,
            fd: -1,
            class: options.class,
            off: options.off,
        };
        self.begin(&new, options.port)
    }

    pub(crate) fn begin(&self, new: &New, port: u32) -> Result<EventId, EventError> {
        if new.flags & flag::PINNED != 0 && self.0.roster().lane_of(port).is_none() {
            return Err(EventError::PinnedThreadGone);
        }
        let id = self.0.table.begin(new)?;
        self.0.table.slot(id.index).home.store(port, Relaxed);
        if new.flags & flag::HIGH != 0 {
            self.0.has_high.store(true, Relaxed);
        }
        let roster = self.0.roster();
        let (view, rng) = (crate::roster::View(&roster), self.0.seed());
        roster.schedule.begin(
            &crate::schedule::At { lane: 0, host: &view, rng: &rng },
            id.index,
            new.class,
        );
        Ok(id)
    }

    /// Says that a user event happened. Any thread may; several before it is told are one.
    ///
    /// # Errors
    /// [`EventError::Ended`], [`EventError::Closed`].
    pub fn trigger(&self, id: EventId) -> Result<(), EventError> {
        self.0.check()?;
        self.0.table.alive(id)?;
        self.activate(id, 0);
        Ok(())
    }

    pub(crate) fn activate(&self, id: EventId, ready: u32) {
        let slot = self.0.table.slot(id.index);
        slot.ready.fetch_or(ready, Relaxed);
        let next = slot.state.activate(id.generation);
        self.0.follow(id.index, next, NONE, &self.0.seed());
    }

    /// Changes what is asked of a descriptor.
    ///
    /// # Errors
    /// [`EventError::Ended`], [`EventError::PinnedThreadGone`]; the system's.
    pub fn set_interest(&self, id: EventId, interest: Interest) -> Result<(), EventError> {
        let slot = self.reachable(id)?;
        if slot.fd.load(Relaxed) < 0 {
            return Err(system("change the interest in what has no descriptor")(no_descriptor()));
        }
        let before = slot.wants.swap(interest.0, Relaxed);
        if slot.has(flag::ALWAYS) {
            return Ok(());
        }
        self.0.rewatch(id).inspect_err(|_| slot.wants.store(before, Relaxed))
    }

    pub(crate) fn reachable(&self, id: EventId) -> Result<&crate::slot::Slot, EventError> {
        self.0.check()?;
        let slot = self.0.table.alive(id)?;
        let is_lost =
            slot.has(flag::PINNED) && self.0.roster().lane_of(slot.home.load(Relaxed)).is_none();
        if is_lost { Err(EventError::PinnedThreadGone) } else { Ok(slot) }
    }

    /// Tells an event no more until [`EventQueue::turn_on`]; what happens meanwhile is remembered. A thread that handles it goes on.
    ///
    /// # Errors
    /// [`EventError::Ended`].
    pub fn turn_off(&self, id: EventId) -> Result<(), EventError> {
        self.0.check()?;
        match self.0.table.alive(id)?.state.turn_off(id.generation) {
            true => Ok(()),
            false => Err(EventError::Ended),
        }
    }

    /// Tells an event again, and what happened meanwhile.
    ///
    /// # Errors
    /// [`EventError::Ended`], [`EventError::PinnedThreadGone`].
    pub fn turn_on(&self, id: EventId) -> Result<(), EventError> {
        let slot = self.reachable(id)?;
        let is_looked_at = slot.has(flag::LEVEL) && slot.fd.load(Relaxed) >= 0;
        let ready = if is_looked_at { slot.ready_now() } else { 0 };
        slot.ready.fetch_or(ready, Relaxed);
        let next = slot.state.turn_on(id.generation, ready != 0);
        if next == Next::Enqueue && is_looked_at && ready == 0 {
            // What happened while it was off may be over.
            slot.doubt();
        }
        self.0.follow(id.index, next, NONE, &self.0.seed());
        Ok(())
    }

    /// Ends a registration. When this returns no thread is given the event any more; one may be handling it still.
    ///
    /// # Errors
    /// [`EventError::Ended`].
    pub fn deregister(&self, id: EventId) -> Result<(), EventError> {
        self.0.check_process()?;
        self.0.table.alive(id)?;
        self.0.end(id).then_some(()).ok_or(EventError::Ended)
    }
}

impl crate::queue::Inner {
    /// Ends a registration. False if somebody else has.
    pub fn end(&self, id: EventId) -> bool {
        let Ok(slot) = self.table.alive(id) else { return false };
        let fd = slot.fd.load(Relaxed);
        if fd < 0 {
            return self.end_unwatched(id);
        }
        let mut carriers = self.descriptors.lock(fd);
        if self.table.alive(id).is_err() {
            return false;
        }
        self.end_locked(id, fd, &mut carriers);
        true
    }

    /// Its descriptor is free before the event has ended: whoever holds the event may give the slot back at once then.
    fn end_locked(&self, id: EventId, fd: RawFd, carriers: &mut Carriers) {
        let slot = self.table.slot(id.index);
        match self.part(id) {
            Some(Other::Carrier(first)) => {
                let _ = self.rewatch_carrier(first);
            }
            other => {
                self.unwatch(slot, &mut slot.watch.lock().unwrap());
                carriers.remove(&fd);
                if let Some(Other::Rider(second)) = other {
                    carriers.insert(fd, second);
                    // A descriptor that was closed cannot be watched, and need not be.
                    let _ = self.rewatch_carrier(second);
                }
            }
        }
        self.end_unwatched(id);
    }

    /// Ends what was registered on a descriptor that was closed, without a look at the one that has its number now.
    fn discard(&self, id: EventId, fd: RawFd, carriers: &mut Carriers) {
        carriers.remove(&fd);
        let slot = self.table.slot(id.index);
        let other = self.part(id);
        self.unwatch(slot, &mut slot.watch.lock().unwrap());
        if let Some(Other::Carrier(other) | Other::Rider(other)) = other {
            self.end_unwatched(other);
        }
        self.end_unwatched(id);
    }

    /// Parts the two events of a descriptor. The other one.
    fn part(&self, id: EventId) -> Option<Other> {
        let slot = self.table.slot(id.index);
        let (first, second) = (slot.first.swap(NONE, Relaxed), slot.second.swap(NONE, Relaxed));
        if first != NONE {
            self.table.slot(first).second.store(NONE, Relaxed);
            return Some(Other::Carrier(self.table.id(first)));
        }
        if second != NONE {
            self.table.slot(second).first.store(NONE, Relaxed);
            return Some(Other::Rider(self.table.id(second)));
        }
        None
    }

    pub fn end_unwatched(&self, id: EventId) -> bool {
        let ended = self.sources.end(id, self.table.slot(id.index));
        if ended.as_ref().is_some_and(|(next, _)| *next == Next::Free) {
            self.table.free(id.index);
        }
        ended.is_some()
    }
}

/// The other event of a descriptor.
enum Other {
    Carrier(EventId),
    Rider(EventId),
}
