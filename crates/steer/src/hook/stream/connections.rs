//! The return path: from a request's tag to its connection.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::StreamScheduler;

/// The connections of a server whose requests go to workers: an answer finds its connection by the request's
/// tag.
///
/// Call [`Connections::close_ended`] now and then, or in a loop: nothing else reads from the connections, so
/// nothing else notices when they end.
#[derive(Debug)]
pub struct Connections {
    epoll: OwnedFd,
    patience: Duration,
    open: Mutex<HashMap<u64, Arc<Mutex<TcpStream>>>>,
    /// Clients that have closed their sending side, and when to give up on them.
    ending: Mutex<Vec<(Instant, u64)>>,
}

/// Ends handled per call.
const AT_ONCE: usize = 64;

impl Connections {
    /// Creates an empty set. A client that does not accept an answer within `patience`, or has closed its
    /// side for that long, is disconnected.
    ///
    /// # Errors
    /// The system's.
    pub fn new(patience: Duration) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, patience, open: Mutex::default(), ending: Mutex::default() })
    }

    /// Takes over a connection and schedules its requests; returns its tag.
    ///
    /// # Errors
    /// Those of [`StreamScheduler::add_connection`], and the system's: then the connection is closed.
    pub fn adopt(&self, scheduler: &StreamScheduler, connection: TcpStream) -> io::Result<u64> {
        connection.set_write_timeout(Some(self.patience))?;
        // Answers are written whole, so none should wait for the acknowledgement of the previous one.
        connection.set_nodelay(true)?;
        let tag = rustix::net::sockopt::socket_cookie(&connection)?;
        let ends = EventFlags::RDHUP | EventFlags::ONESHOT;
        epoll::add(&self.epoll, &connection, EventData::new_u64(tag), ends)?;
        let shared = Arc::new(Mutex::new(connection));
        // It must be answerable before its first request can be read.
        lock(&self.open).insert(tag, shared.clone());
        let added = scheduler.add_connection(lock(&shared).as_fd());
        if added.is_err() {
            self.close(tag);
        }
        added
    }

    /// Sends all of `answer` to the connection of `tag`; false if it has gone, or took longer than the
    /// patience and was disconnected. Answers of several workers to one connection are serialised.
    pub fn answer(&self, tag: u64, answer: &[u8]) -> bool {
        let found = lock(&self.open).get(&tag).cloned();
        let sent = found.is_some_and(|connection| lock(&connection).write_all(answer).is_ok());
        if !sent {
            self.close(tag);
        }
        sent
    }

    /// Closes connections that failed, were misframed, or whose client closed long ago; waits up to `timeout`
    /// for one. Returns how many.
    ///
    /// # Errors
    /// The system's.
    pub fn close_ended(&self, timeout: Duration) -> io::Result<usize> {
        let before = self.len();
        let timeout = Timespec::try_from(timeout).ok();
        let mut events = Vec::with_capacity(AT_ONCE);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events {
            let (tag, flags) = (event.data.u64(), event.flags);
            if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
                self.close(tag);
            } else {
                // It may still wait for answers.
                lock(&self.ending).push((Instant::now() + self.patience, tag));
            }
        }
        self.close_long_ended();
        Ok(before.saturating_sub(self.len()))
    }

    fn close_long_ended(&self) {
        let now = Instant::now();
        let mut ended = Vec::new();
        lock(&self.ending).retain(|(when, tag)| {
            if *when <= now {
                ended.push(*tag);
            }
            *when > now
        });
        ended.into_iter().for_each(|tag| self.close(tag));
    }

    /// Closes the connection of `tag`, if it exists.
    pub fn close(&self, tag: u64) {
        let closed = lock(&self.open).remove(&tag);
        if let Some(connection) = closed {
            // A worker may hold it while it answers: the client must see the end all the same.
            let _ = lock(&connection).shutdown(Shutdown::Both);
        }
    }

    /// Returns how many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.open).len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A panic elsewhere leaves nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
