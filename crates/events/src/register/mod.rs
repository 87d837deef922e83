//! What programs register: descriptors and user events. The submodules register timers, signals, processes
//! and files.

mod files;
mod processes;
mod signals;
mod timers;

pub use signals::block_signals;

use crate::error::system;
use crate::ids::{EventId, NONE};
use crate::options::{EventOptions, Interest};
use crate::queue::EventQueue;
use crate::slot::{NewEvent, flag};
use crate::state::Next;
use crate::{EventError, Worker};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;

impl EventOptions {
    /// Reports the event only to the thread of `worker` (SKQ, section 4.4). If that thread leaves, the event
    /// is not reported any more, and changing it fails with [`EventError::PinnedThreadGone`].
    #[must_use]
    pub fn pin(self, worker: &Worker) -> Self {
        EventOptions { port: worker.port().number, ..self.with(flag::PINNED, true) }
    }
}

fn no_descriptor() -> std::io::Error {
    rustix::io::Errno::BADF.into()
}

impl EventQueue {
    /// Registers a descriptor. Its events are reported with `token`. The descriptor stays the caller's, who
    /// should call [`EventQueue::deregister`] before closing it. If it is closed without that and its number
    /// is registered again, the old registration ends.
    ///
    /// # Errors
    /// [`EventError::Full`]; [`EventError::Registered`]; [`EventError::PinnedThreadGone`];
    /// [`EventError::System`], for example if the descriptor is not open.
    pub fn register(
        &self,
        fd: &impl AsRawFd,
        interest: Interest,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        self.0.check()?;
        let fd = fd.as_raw_fd();
        let mut carriers = self.0.watches.descriptors.lock(fd);
        if let Some(&old) = carriers.get(&fd) {
            if !self.0.watches.is_stale(&self.0.dispatch, old)? {
                return Err(EventError::Registered(fd));
            }
            self.0.discard(old, fd, &mut carriers);
        }
        let id = self.begin_on(fd, interest, token, options)?;
        match self.0.watches.watch(&self.0.dispatch, id) {
            Ok(true) => {}
            Ok(false) => self.mark_always_ready(id, interest),
            Err(error) => {
                self.0.end_unwatched(id);
                return Err(error);
            }
        }
        carriers.insert(fd, id);
        Ok(id)
    }

    /// Registers a second event on the descriptor of `first`, with its own options, token and lifetime: one
    /// thread may read while another writes. A descriptor has at most two events.
    ///
    /// # Errors
    /// [`EventError::Full`]; [`EventError::Ended`] if `first` has ended; [`EventError::Registered`] if the
    /// descriptor has two events already; [`EventError::System`] if `first` has no descriptor or it was
    /// closed.
    pub fn register_second(
        &self,
        first: EventId,
        interest: Interest,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        self.0.check()?;
        let fd = self.0.dispatch.table.alive(first)?.fd.load(Relaxed);
        if fd < 0 {
            return Err(system("watch what has no descriptor")(no_descriptor()));
        }
        let _carriers = self.0.watches.descriptors.lock(fd);
        let slot = self.0.dispatch.table.alive(first)?;
        if slot.first.load(Relaxed) != NONE || slot.second.load(Relaxed) != NONE {
            return Err(EventError::Registered(fd));
        }
        let id = self.begin_on(fd, interest, token, options)?;
        self.0.dispatch.table.slot(id.index).first.store(first.index, Relaxed);
        slot.second.store(id.index, Relaxed);
        if slot.has(flag::ALWAYS) {
            self.mark_always_ready(id, interest);
        } else if let Err(error) = self.0.watches.rewatch_carrier(&self.0.dispatch, first) {
            self.0.unlink(id);
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
        let EventOptions { flags, class, off, port } = options;
        self.0.dispatch.begin(&NewEvent { token, flags, wants: interest.0, fd, class, off }, port)
    }

    /// Files on a disk are always ready, and the system does not watch them.
    fn mark_always_ready(&self, id: EventId, interest: Interest) {
        let slot = self.0.dispatch.table.slot(id.index);
        slot.flags.fetch_or(flag::ALWAYS | flag::LEVEL, Relaxed);
        self.0.dispatch.activate(id, interest.0);
    }

    /// Registers an event that happens when the program calls [`EventQueue::trigger`].
    ///
    /// # Errors
    /// [`EventError::Full`].
    pub fn register_user(&self, token: u64, options: EventOptions) -> Result<EventId, EventError> {
        self.0.check()?;
        let new = NewEvent {
            token,
            flags: options.flags & !flag::LEVEL,
            wants: 0,
            fd: -1,
            class: options.class,
            off: options.off,
        };
        self.0.dispatch.begin(&new, options.port)
    }

    /// Triggers a user event, from any thread. Several triggers before it is reported count as one.
    ///
    /// # Errors
    /// [`EventError::Ended`], [`EventError::Closed`].
    pub fn trigger(&self, id: EventId) -> Result<(), EventError> {
        self.0.check()?;
        self.0.dispatch.table.alive(id)?;
        self.0.dispatch.activate(id, 0);
        Ok(())
    }

    /// Changes what is asked of a descriptor.
    ///
    /// # Errors
    /// [`EventError::Ended`], [`EventError::PinnedThreadGone`], [`EventError::System`].
    pub fn set_interest(&self, id: EventId, interest: Interest) -> Result<(), EventError> {
        let slot = self.0.reachable(id)?;
        if slot.fd.load(Relaxed) < 0 {
            return Err(system("change the interest in what has no descriptor")(no_descriptor()));
        }
        let before = slot.wants.swap(interest.0, Relaxed);
        if slot.has(flag::ALWAYS) {
            return Ok(());
        }
        self.0
            .watches
            .rewatch(&self.0.dispatch, id)
            .inspect_err(|_| slot.wants.store(before, Relaxed))
    }

    /// Stops reporting an event until [`EventQueue::turn_on`]; what happens meanwhile is remembered. A thread
    /// that is handling it goes on.
    ///
    /// # Errors
    /// [`EventError::Ended`].
    pub fn turn_off(&self, id: EventId) -> Result<(), EventError> {
        self.0.check()?;
        match self.0.dispatch.table.alive(id)?.state.turn_off(id.generation) {
            true => Ok(()),
            false => Err(EventError::Ended),
        }
    }

    /// Reports an event again, and what happened while it was off.
    ///
    /// # Errors
    /// [`EventError::Ended`], [`EventError::PinnedThreadGone`].
    pub fn turn_on(&self, id: EventId) -> Result<(), EventError> {
        let slot = self.0.reachable(id)?;
        let is_checked = slot.has(flag::LEVEL) && slot.fd.load(Relaxed) >= 0;
        let ready = if is_checked { slot.ready_now() } else { 0 };
        slot.ready.fetch_or(ready, Relaxed);
        let next = slot.state.turn_on(id.generation, ready != 0);
        if next == Next::Enqueue && is_checked && ready == 0 {
            // What happened while the event was off may be over.
            slot.doubt();
        }
        self.0.dispatch.follow(id.index, next, NONE, &self.0.dispatch.seed());
        Ok(())
    }

    /// Ends a registration. Once this returns, no thread is given the event any more; one may still be
    /// handling it.
    ///
    /// # Errors
    /// [`EventError::Ended`].
    pub fn deregister(&self, id: EventId) -> Result<(), EventError> {
        self.0.check_process()?;
        self.0.dispatch.table.alive(id)?;
        self.0.end(id).then_some(()).ok_or(EventError::Ended)
    }

    /// Reports a timer, signal or file event with `data` in addition to what its source reports, now or once
    /// it is released. For callers that consider a condition to hold beyond its report.
    ///
    /// # Errors
    /// [`EventError::Ended`], also for an event of another kind; [`EventError::Closed`];
    /// [`EventError::PinnedThreadGone`].
    pub fn notify(&self, id: EventId, data: u64) -> Result<(), EventError> {
        let slot = self.0.reachable(id)?;
        if self.0.sources.add(id, slot, data)? {
            self.0.dispatch.activate_all(&[id], NONE, &self.0.dispatch.seed());
        }
        Ok(())
    }
}
