//! What an event server's threads wait on: one queue for all, or one epoll instance each.

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};

use heddle::events::{EventError, EventId, EventOptions, EventQueue, Interest, Stats, WorkerStats};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

/// Delivers ready descriptors to threads. All registrations are level-triggered.
pub(super) trait Backend: Send + Sync + 'static {
    /// Names a registration.
    type Key: Copy + Send;

    /// Registers `fd`. Another thread may get the event before this returns.
    fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<Self::Key>;
    /// Changes the interest. Call it from the thread that handles the event.
    fn change(
        &self,
        key: Self::Key,
        fd: BorrowedFd<'_>,
        token: u64,
        interest: Interest,
    ) -> io::Result<()>;
    /// Ends a registration; `fd` must still be open.
    fn remove(&self, key: Self::Key, fd: BorrowedFd<'_>);
    /// Calls `handle` with the tokens of ready descriptors until [`Backend::stop`]; `handle` returns whether
    /// it knows that there is nothing more to read.
    fn work(&self, thread: usize, handle: &mut dyn FnMut(u64) -> bool) -> io::Result<()>;
    /// Makes all threads return from [`Backend::work`].
    fn stop(&self);
    /// Describes the backend, as lines of INFO.
    fn describe(&self) -> String;
}

/// One queue for all threads, and a policy.
pub(crate) struct Shared {
    queue: EventQueue,
    /// No thread serves before all have their workers: clients could have taken the descriptors for them.
    all_have_workers: Barrier,
    /// The threads' counts at the stop; afterwards the threads are gone.
    last: OnceLock<Stats>,
}

impl Shared {
    /// Serves `queue` by so many threads.
    pub(super) fn new(queue: EventQueue, threads: usize) -> Shared {
        Shared { queue, all_have_workers: Barrier::new(threads), last: OnceLock::new() }
    }
}

impl Backend for Shared {
    type Key = EventId;

    fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<EventId> {
        self.queue.register(&fd, interest, token, EventOptions::default()).map_err(io::Error::other)
    }

    fn change(
        &self,
        key: EventId,
        _: BorrowedFd<'_>,
        _: u64,
        interest: Interest,
    ) -> io::Result<()> {
        self.queue.set_interest(key, interest).map_err(io::Error::other)
    }

    fn remove(&self, key: EventId, _: BorrowedFd<'_>) {
        // Otherwise registrations end only with the queue.
        let _ = self.queue.deregister(key);
    }

    fn work(&self, _: usize, handle: &mut dyn FnMut(u64) -> bool) -> io::Result<()> {
        let worker = self.queue.worker();
        self.all_have_workers.wait();
        let mut worker = match worker {
            Err(EventError::Closed) => return Ok(()),
            other => other.map_err(io::Error::other)?,
        };
        loop {
            let events = match worker.wait(None) {
                Err(EventError::Closed) => return Ok(()),
                other => other.map_err(io::Error::other)?,
            };
            for event in events {
                if handle(event.token()) {
                    event.drained();
                }
            }
        }
    }

    fn stop(&self) {
        let _ = self.last.set(self.queue.stats());
        self.queue.close();
    }

    fn describe(&self) -> String {
        let stats = self.last.get().cloned().unwrap_or_else(|| self.queue.stats());
        let sum = |figure: fn(&WorkerStats) -> u64| stats.workers.iter().map(figure).sum::<u64>();
        let each: Vec<String> = stats.workers.iter().map(|one| one.events.to_string()).collect();
        let mut text = format!("policy:{}\r\nthreads:{}\r\n", self.queue.policy(), each.len());
        for (name, value) in [
            ("events", sum(|one| one.events)),
            ("waits", sum(|one| one.waits)),
            ("parks", sum(|one| one.parks)),
            ("steals", sum(|one| one.steals)),
            ("stolen", sum(|one| one.stolen)),
            ("forwarded", sum(|one| one.forwarded)),
            ("registered", stats.registrations as u64),
        ] {
            // Writing to a string cannot fail.
            let _ = write!(text, "{name}:{value}\r\n");
        }
        let _ = write!(text, "imbalance_percent:{:.1}\r\n", stats.imbalance());
        text + &format!("events_by_thread:{}\r\n", each.join(","))
    }
}

/// The bell's token.
const BELL: u64 = u64::MAX;
/// Most events per wait, as in libevent.
const BATCH: usize = 32;

/// One epoll instance per thread; descriptors are dealt to them in turn and stay there.
pub(crate) struct PerThread {
    epolls: Vec<(OwnedFd, OwnedFd)>,
    next: AtomicUsize,
    stopped: AtomicBool,
}

impl PerThread {
    pub(super) fn new(threads: usize) -> io::Result<PerThread> {
        let make = |_| {
            let one = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            epoll::add(&one, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
            Ok((one, bell))
        };
        let epolls = (0..threads).map(make).collect::<io::Result<_>>()?;
        Ok(PerThread { epolls, next: AtomicUsize::new(0), stopped: AtomicBool::new(false) })
    }

    fn flags(interest: Interest) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, interest != Interest::WRITE);
        flags.set(EventFlags::OUT, interest != Interest::READ);
        flags
    }
}

impl Backend for PerThread {
    /// The thread's number.
    type Key = usize;

    fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<usize> {
        let key = self.next.fetch_add(1, Ordering::Relaxed) % self.epolls.len();
        let data = EventData::new_u64(token);
        epoll::add(&self.epolls[key].0, fd, data, Self::flags(interest))?;
        Ok(key)
    }

    fn change(
        &self,
        key: usize,
        fd: BorrowedFd<'_>,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let data = EventData::new_u64(token);
        Ok(epoll::modify(&self.epolls[key].0, fd, data, Self::flags(interest))?)
    }

    fn remove(&self, key: usize, fd: BorrowedFd<'_>) {
        // It fails only for what is not registered.
        let _ = epoll::delete(&self.epolls[key].0, fd);
    }

    fn work(&self, thread: usize, handle: &mut dyn FnMut(u64) -> bool) -> io::Result<()> {
        let mut events = Vec::with_capacity(BATCH);
        while !self.stopped.load(Ordering::Acquire) {
            events.clear();
            let epoll = &self.epolls[thread].0;
            match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let token = event.data.u64();
                if token != BELL {
                    handle(token);
                }
            }
        }
        Ok(())
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        for (_, bell) in &self.epolls {
            // The counter is full, so the bell already rings.
            let _ = rustix::io::write(bell.as_fd(), &1u64.to_ne_bytes());
        }
    }

    fn describe(&self) -> String {
        format!("threads:{}\r\n", self.epolls.len())
    }
}
