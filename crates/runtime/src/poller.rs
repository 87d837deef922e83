//! Readiness of sockets, for tasks that wait on them.

use crate::preempt::NoPreempt;
use crate::sync::WaitQueue;
use heddle_core::Ns;
use heddle_sys::epoll::{BROKEN, Epoll, Events, READ, WRITE};
use heddle_sys::sync::ReadyWord;
use heddle_sys::sync::park::PollLock;
use std::cell::UnsafeCell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// One direction of a descriptor. That no edge is lost is model-checked in `heddle-sys`.
#[derive(Default)]
struct Direction {
    ready: ReadyWord,
    waiters: WaitQueue,
}

/// A registered descriptor.
#[derive(Default)]
pub struct Source {
    read: Direction,
    write: Direction,
    key: AtomicUsize,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read, or the end.
    Read,
    /// Room to write.
    Write,
}

impl Source {
    fn direction(&self, interest: Interest) -> &Direction {
        match interest {
            Interest::Read => &self.read,
            Interest::Write => &self.write,
        }
    }

    /// Runs `op` until it does not report `WouldBlock`, sleeping in between until the descriptor is ready. With a
    /// deadline, ends with `TimedOut` once that has passed.
    ///
    /// # Errors
    /// Those of `op`, and `TimedOut`.
    pub fn run<R>(
        &self,
        interest: Interest,
        deadline: Option<Ns>,
        mut op: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        let direction = self.direction(interest);
        loop {
            let seen = direction.ready.look();
            match op() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                done => {
                    // There may be more: an edge wakes one waiter only, so pass it on.
                    if direction.waiters.has_waiters() && direction.ready.is_ready() {
                        direction.waiters.wake_one();
                    }
                    return done;
                }
            }
            direction.ready.found_nothing(seen);
            let not_ready = || !direction.ready.is_ready();
            if !direction.waiters.wait_while(not_ready, deadline) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn report(&self, ready: u32) {
        for (bit, direction) in [(READ, &self.read), (WRITE, &self.write)] {
            if ready & (bit | BROKEN) != 0 {
                direction.ready.report();
                // A broken descriptor concerns everybody who waits on it.
                if ready & BROKEN != 0 {
                    direction.waiters.wake_all();
                } else {
                    direction.waiters.wake_one();
                }
            }
        }
    }
}

/// The sockets of a runtime.
pub(crate) struct Poller {
    epoll: Epoll,
    /// Admits one thread at a time.
    lock: PollLock,
    events: UnsafeCell<Events>,
    sources: Mutex<Vec<Option<Arc<Source>>>>,
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
            sources: Mutex::default(),
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

    fn sources(&self) -> std::sync::MutexGuard<'_, Vec<Option<Arc<Source>>>> {
        self.sources.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Registers a non-blocking descriptor.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> io::Result<Arc<Source>> {
        let _guard = NoPreempt::new();
        let source = Arc::new(Source::default());
        let mut sources = self.sources();
        let key = sources.iter().position(Option::is_none).unwrap_or(sources.len());
        if key == sources.len() {
            sources.push(None);
        }
        source.key.store(key, Ordering::Relaxed);
        self.epoll.add(fd, key as u64)?;
        sources[key] = Some(source.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(source)
    }

    /// Forgets a descriptor, which is still open.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>, source: &Source) {
        let _guard = NoPreempt::new();
        self.epoll.remove(fd);
        self.sources()[source.key.load(Ordering::Relaxed)] = None;
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Polls unless somebody else does, and wakes whoever waited; how many reports there were, `None` if somebody
    /// else polls. A report for a descriptor that was just replaced under the same key is a wake too many, which
    /// waiters tolerate.
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
            let source = self.sources().get(key as usize).cloned().flatten();
            if let Some(source) = source {
                source.report(ready);
                reports += 1;
            }
        }
        reports
    }
}
