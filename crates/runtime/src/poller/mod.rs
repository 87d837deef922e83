//! Readiness of descriptors, for tasks and threads that wait for it.
//!
//! Each runtime has one epoll instance, which one thread at a time polls for all. A registration takes a slot in a
//! table that the whole process shares; an event finds its slot by number, without a lock (`slab`, `source`).

mod slab;
mod source;

pub(crate) use source::{Interest, Source};

use crate::preempt::NoPreempt;
use heddle_core::Ns;
use heddle_netstack::lane::{Ready, Token};
use heddle_sync::park::PollLock;
use heddle_sys::epoll::{Epoll, Events, READ};
use slab::{Key, Slab};
use std::cell::UnsafeCell;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The registered descriptors of all runtimes.
static SOURCES: Slab<Source> = Slab::new();

/// Marks the keys of descriptors that a thread library waits for by itself: no slot has such a number.
const ARMED: u64 = 1 << 31;

/// What a thread library does with an event: it gets the descriptor and what it is ready for.
pub(crate) type Report = fn(RawFd, u32);

/// A descriptor's slot in the table. It may outlive the runtime.
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
        self.source.clear();
        SOURCES.free(self.key);
    }
}

/// Reports that the socket of `token`, the number of a [`Registration`], became ready in a lane. Preemption is off.
pub(crate) fn report(token: Token, ready: Ready) {
    if let Some(source) = SOURCES.get(Key(token.0)) {
        source.wake(ready);
    }
}

impl Registration {
    /// Takes a slot for what no epoll instance reports.
    ///
    /// # Errors
    /// Fails if the table is full.
    pub(crate) fn unpolled() -> io::Result<Registration> {
        let _guard = NoPreempt::new();
        let key = SOURCES.allocate()?;
        let source = SOURCES.get(key).expect("just allocated");
        Ok(Registration { key, source })
    }

    /// Returns the slot itself, which is never unmapped.
    pub(crate) fn source(&self) -> &'static Source {
        self.source
    }

    /// Returns the registration's number, for [`report`].
    pub(crate) fn token(&self) -> Token {
        Token(self.key.0)
    }
}

/// The watched descriptors of a runtime, and its epoll instance.
pub(crate) struct Poller {
    epoll: Epoll,
    /// Held by the thread that polls.
    lock: PollLock,
    events: UnsafeCell<Events>,
    /// Number of registered descriptors.
    count: AtomicUsize,
    /// A thread library's; see [`Poller::arm`].
    report: OnceLock<Report>,
}

// SAFETY: only the holder of the lock uses the event buffer.
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
            report: OnceLock::new(),
        })
    }

    /// Returns whether any descriptor is registered.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Returns whether a poll would find an event. Takes a system call.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_active() && self.epoll.is_ready()
    }

    /// Waits up to `time` until a poll would find an event; returns whether it would.
    pub(crate) fn await_ready(&self, time: Ns) -> bool {
        self.epoll.await_ready(time)
    }

    /// Wakes the thread that sleeps in the poll.
    pub(crate) fn ring(&self) {
        self.epoll.ring();
    }

    /// Registers a descriptor.
    ///
    /// # Errors
    /// Fails if epoll does not support descriptors of this kind, if it already watches this one, if a system limit is
    /// reached, or if the table is full.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> io::Result<Registration> {
        self.register(fd, |key| self.epoll.add(fd, key))
    }

    /// Takes a slot for `fd` and has `watch` watch that under the slot's key.
    fn register(
        &self,
        fd: BorrowedFd<'_>,
        watch: impl FnOnce(u64) -> io::Result<()>,
    ) -> io::Result<Registration> {
        let _guard = NoPreempt::new();
        // Frees the slot on failure.
        let registration = Registration::unpolled()?;
        watch(registration.key.0).map_err(|error| explain(error, fd))?;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(registration)
    }

    /// Registers a descriptor of which only the next event is reported, until [`Poller::arm_again`]: for what is
    /// usually seen without the poller. An armed descriptor costs each event a wake-up of the instance.
    ///
    /// # Errors
    /// As [`Poller::add`].
    pub(crate) fn add_once(&self, fd: BorrowedFd<'_>) -> io::Result<Registration> {
        self.register(fd, |key| self.epoll.arm(fd.as_raw_fd(), key, READ))
    }

    /// Has the next event of `fd` reported, also if it has occurred already, if the last one was.
    pub(crate) fn arm_again(&self, registration: &Registration, fd: BorrowedFd<'_>) {
        // Refused only if the descriptor is not open: then nothing occurs.
        let _ = registration.ask_kernel(|| -> io::Result<()> {
            self.epoll.arm(fd.as_raw_fd(), registration.key.0, READ)?;
            Err(io::ErrorKind::WouldBlock.into())
        });
    }

    /// Makes the poller call `report` for the descriptors that are armed, and counts as a source of events from now on.
    pub(crate) fn set_report(&self, report: Report) {
        if self.report.set(report).is_ok() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reports `events` of `fd` once, to [`Poller::set_report`]'s function: now or when they occur. Returns false if
    /// the system cannot watch it.
    pub(crate) fn arm(&self, fd: RawFd, events: u32) -> bool {
        self.epoll.arm(fd, ARMED | fd as u64, events).is_ok()
    }

    /// Removes a descriptor that is still open. Its [`Registration`] is dropped after this.
    pub(crate) fn remove(&self, fd: RawFd) {
        let _guard = NoPreempt::new();
        self.epoll.unwatch(fd);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Polls and wakes the waiters; returns the number of events. `None` if another thread polls.
    pub(crate) fn poll(&self, timeout: Option<Ns>) -> Option<usize> {
        self.lock.try_poll(|| self.poll_locked(timeout))
    }

    /// Sleeps in the poll on behalf of all until an event or `timeout`, unless that is no longer `wanted`. Returns
    /// false at once if another thread polls. See [`PollLock::attend`].
    pub(crate) fn attend(
        &self,
        wanted: impl FnOnce() -> bool,
        timeout: impl FnOnce() -> Option<Ns>,
    ) -> bool {
        self.lock.attend(wanted, || {
            self.poll_locked(timeout());
        })
    }

    /// Returns whether a thread sleeps in the poll or is about to. See [`PollLock::is_attended`].
    pub(crate) fn is_attended(&self) -> bool {
        self.lock.is_attended()
    }

    /// Polls and reports the events. The caller holds the lock.
    fn poll_locked(&self, timeout: Option<Ns>) -> usize {
        // SAFETY: the caller holds the lock.
        let events = unsafe { &mut *self.events.get() };
        self.epoll.wait(events, timeout);
        let mut reports = 0;
        for (key, ready) in events.iter() {
            if let Some(source) = SOURCES.get(Key(key)) {
                source.report(ready);
                reports += 1;
            } else if let Some(report) = self.report.get().filter(|_| key & ARMED != 0) {
                report((key & !ARMED) as RawFd, ready);
                reports += 1;
            }
        }
        reports
    }
}

/// Explains the system's error about `fd` in the runtime's terms.
fn explain(error: io::Error, fd: BorrowedFd<'_>) -> io::Error {
    let (kind, why) = match error.raw_os_error() {
        Some(libc::EPERM) => (
            io::ErrorKind::Unsupported,
            "epoll does not support regular files and directories; use heddle::fs or heddle::blocking",
        ),
        Some(libc::EEXIST) => {
            (io::ErrorKind::AlreadyExists, "the runtime already watches it; duplicate it first")
        }
        _ => return error,
    };
    io::Error::new(kind, format!("cannot watch descriptor {}: {why}", fd.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::net::UnixStream;

    const NOW: Option<Ns> = Some(Ns::ZERO);

    #[test]
    fn an_event_of_a_removed_descriptor_does_not_reach_the_next_in_its_slot() {
        let poller = Poller::new().unwrap();
        let (a, b) = UnixStream::pair().unwrap();
        let first = poller.add(a.as_fd()).unwrap();
        assert_eq!(poller.poll(NOW), Some(1), "it can be written to");
        let (old, slot) = (first.key, first.source);
        poller.remove(a.as_raw_fd());
        drop(first);
        let second = poller.add(b.as_fd()).unwrap();
        // The process has one table: another test may have taken the slot.
        if std::ptr::eq(slot, second.source) {
            assert!(SOURCES.get(old).is_none());
        }
        assert_eq!(poller.poll(NOW), Some(1));
        poller.remove(b.as_raw_fd());
        assert!(!poller.is_active());
    }

    #[test]
    fn a_refused_descriptor_is_named_with_the_reason() {
        let poller = Poller::new().unwrap();
        let file = File::open("/proc/self/exe").unwrap();
        let refused = poller.add(file.as_fd()).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        let text = format!("cannot watch descriptor {}: epoll does not support", file.as_raw_fd());
        assert!(refused.to_string().starts_with(&text), "{refused}");
        let (socket, _peer) = UnixStream::pair().unwrap();
        let _first = poller.add(socket.as_fd()).unwrap();
        let again = poller.add(socket.as_fd()).err().unwrap();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(poller.count.load(Ordering::Relaxed), 1);
    }
}
