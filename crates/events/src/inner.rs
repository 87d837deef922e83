//! The shared state behind the handles of a queue.

use crate::EventError;
use crate::dispatch::Dispatcher;
use crate::ids::EventId;
use crate::options::EventOptions;
use crate::slot::{NewEvent, Slot, flag};
use crate::sources::Sources;
use crate::state::Next;
use crate::watch::Watches;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A queue. Each part knows only those above it.
pub(crate) struct Inner {
    pub dispatch: Dispatcher,
    pub watches: Watches,
    pub sources: Sources,
    pub priority: Priority,
    pub closed: AtomicBool,
    /// [`heddle_sys::fork::generation`] of the process that made the queue.
    pub process: u32,
}

/// How events of high priority are treated.
pub(crate) struct Priority {
    /// The part of a batch that may be of high priority, in per cent (SKQ's rtshare).
    pub share: AtomicU32,
    /// How often a second a worker should come back to look for events; 0: no rule (SKQ's rtfreq).
    pub frequency: AtomicU32,
}

impl Priority {
    pub fn new(share: u32, frequency: u32) -> Priority {
        Priority { share: AtomicU32::new(share), frequency: AtomicU32::new(frequency) }
    }
}

impl Inner {
    /// Fails if the queue is closed, or was made by the process from which this one was forked.
    pub fn check(&self) -> Result<(), EventError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(EventError::Closed);
        }
        self.check_process()
    }

    /// Whether the queue was made by the process from which this one was forked. The child shares the
    /// parent's epolls, in which it would end the parent's registrations, and inherits locks that other
    /// threads of the parent may have held.
    pub fn is_foreign(&self) -> bool {
        self.process != heddle_sys::fork::generation()
    }

    pub fn check_process(&self) -> Result<(), EventError> {
        if self.is_foreign() { Err(EventError::Forked) } else { Ok(()) }
    }

    /// Wakes all workers.
    pub fn ring_all(&self) {
        self.dispatch.workers().ports.iter().for_each(|port| port.epoll.ring());
    }

    /// Begins an event that does not stand for the readiness of a program's descriptor.
    pub fn begin_source(
        &self,
        kind: u32,
        fd: i32,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        let new = NewEvent {
            token,
            flags: options.flags & !flag::LEVEL | kind,
            wants: if fd < 0 { 0 } else { heddle_sys::epoll::READ },
            fd,
            class: options.class,
            off: options.off,
        };
        self.dispatch.begin(&new, options.port)
    }

    /// As [`Dispatcher::reachable`]; fails too if the queue may not be used.
    pub fn reachable(&self, id: EventId) -> Result<&Slot, EventError> {
        self.check()?;
        self.dispatch.reachable(id)
    }

    /// Ends an event that is not registered in any epoll. Returns false if it had ended.
    pub fn end_unwatched(&self, id: EventId) -> bool {
        let table = &self.dispatch.table;
        let ended = self.sources.end(id, table.slot(id.index));
        if ended.as_ref().is_some_and(|(next, _)| *next == Next::Free) {
            table.free(id.index);
        }
        ended.is_some()
    }
}
