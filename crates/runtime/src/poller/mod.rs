//! Readiness of sockets, for tasks that wait on them.
//!
//! One epoll instance for a runtime, which one thread at a time polls for all. Registering takes a slot of a table of the whole
//! process; an event finds it again by number, without a lock (`slab`, `source`).

mod slab;
mod source;

pub(crate) use source::Interest;

use crate::preempt::NoPreempt;
use heddle_core::Ns;
use heddle_sync::park::PollLock;
use heddle_sys::epoll::{Epoll, Events};
use slab::{Key, Slab};
use source::Source;
use std::cell::UnsafeCell;
use std::io;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The registered descriptors of all runtimes.
static SOURCES: Slab<Source> = Slab::new();

/// A descriptor's place in the table. It outlives the runtime, where its socket does.
pub(crate) struct Registration {
    key: Key,
    source: &'static Source,
}

impl Deref for Registration {
    type Target = Source;

    fn deref(&self) -> &Source {
        self.source
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _guard = NoPreempt::new();
        SOURCES.give(self.key);
    }
}

/// The sockets of a runtime.
pub(crate) struct Poller {
    epoll: Epoll,
    /// Admits one thread at a time.
    lock: PollLock,
    events: UnsafeCell<Events>,
    /// How many descriptors are registered.
    count: AtomicUsize,
}

// SAFETY: the event buffer is used by the holder of the lock only.
unsafe impl Sync for Poller {}
// SAFETY: as above.
unsafe impl Send for Poller {}

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        Ok(Poller {
            epoll: Epoll::new()?,
            lock: PollLock::default(),
            events: UnsafeCell::new(Events::with_capacity(256)),
            count: AtomicUsize::new(0),
        })
    }

    /// Whether any descriptor is registered.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Whether a poll would bring something. A system call.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_active() && self.epoll.is_ready()
    }

    /// Waits up to `time` until a poll would bring something; whether it would.
    pub(crate) fn await_ready(&self, time: Ns) -> bool {
        self.epoll.await_ready(time)
    }

    /// Ends a poll that sleeps.
    pub(crate) fn ring(&self) {
        self.epoll.ring();
    }

    /// Registers a non-blocking descriptor.
    ///
    /// # Errors
    /// The system's, or that the table is full.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> io::Result<Registration> {
        let _guard = NoPreempt::new();
        let key = SOURCES.take()?;
        let source = SOURCES.get(key).expect("just taken");
        // Given back if the system refuses.
        let registration = Registration { key, source };
        self.epoll.add(fd, key.0)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(registration)
    }

    /// Forgets a descriptor, which is still open; its [`Registration`] is dropped after this.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        let _guard = NoPreempt::new();
        self.epoll.remove(fd);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Polls unless somebody else does, and wakes whoever waited; how many reports there were, `None` if somebody
    /// else polls.
    pub(crate) fn poll(&self, timeout: Option<Ns>) -> Option<usize> {
        self.lock.try_poll(|| self.poll_locked(timeout))
    }

    /// Sleeps in the poll, for all, until something comes or `timeout`, unless it is not `wanted` any more; false at once if
    /// another thread polls. See [`PollLock::attend`].
    pub(crate) fn attend(
        &self,
        wanted: impl FnOnce() -> bool,
        timeout: impl FnOnce() -> Option<Ns>,
    ) -> bool {
        self.lock.attend(wanted, || {
            self.poll_locked(timeout());
        })
    }

    /// Whether a thread sleeps in the poll, or is about to. See [`PollLock::is_attended`].
    pub(crate) fn is_attended(&self) -> bool {
        self.lock.is_attended()
    }

    /// Polls and reports. the lock is held.
    fn poll_locked(&self, timeout: Option<Ns>) -> usize {
        // SAFETY: the lock is held.
        let events = unsafe { &mut *self.events.get() };
        self.epoll.wait(events, timeout);
        let mut reports = 0;
        for (key, ready) in events.iter() {
            if let Some(source) = SOURCES.get(Key(key)) {
                source.report(ready);
                reports += 1;
            }
        }
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const NOW: Option<Ns> = Some(Ns::ZERO);

    #[test]
    fn an_event_of_a_descriptor_that_was_removed_does_not_reach_the_next_in_its_slot() {
        let poller = Poller::new().unwrap();
        let (a, b) = UnixStream::pair().unwrap();
        let first = poller.add(a.as_fd()).unwrap();
        assert_eq!(poller.poll(NOW), Some(1), "room to write");
        let (old, slot) = (first.key, first.source);
        poller.remove(a.as_fd());
        drop(first);
        let second = poller.add(b.as_fd()).unwrap();
        // The table is the process's: another test may have taken the slot.
        if std::ptr::eq(slot, second.source) {
            assert!(SOURCES.get(old).is_none());
        }
        assert_eq!(poller.poll(NOW), Some(1));
        poller.remove(b.as_fd());
        assert!(!poller.is_active());
    }
}
