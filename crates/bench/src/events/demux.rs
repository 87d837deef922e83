//! The three operations in which systems differ.

use super::queue::Queue;
use super::shared_epoll::Epolls;
use super::system::System;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A descriptor that is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// The descriptor, which does not block.
    pub fd: BorrowedFd<'a>,
    /// Whether it is of high priority, where the system has such.
    pub high: bool,
}

/// What a handler left of what it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// Nothing: the last read brought less than it asked for.
    Nothing,
    /// Perhaps something: to be told again.
    Perhaps,
}

/// What is done with an event, by the number of its descriptor.
pub type Handler<'h> = dyn FnMut(usize) -> Remainder + 'h;

/// Threads that wait for the same descriptors.
pub trait Demux: Send + Sync {
    /// Begins to tell of descriptor `number`.
    ///
    /// # Errors
    /// The system's.
    fn register(&self, number: usize) -> io::Result<()>;

    /// The place of the thread that calls, `thread` of those that there will be.
    ///
    /// # Errors
    /// The system's.
    fn worker(&self, thread: usize) -> io::Result<Box<dyn EventWorker + '_>>;
}

/// A thread's place. Not to be sent to another.
pub trait EventWorker {
    /// Waits up to `patience` and hands each event to `handle`; when that returns, the event is done and others may have it.
    ///
    /// # Errors
    /// The system's.
    fn serve(&mut self, patience: Duration, handle: &mut Handler<'_>) -> io::Result<()>;
}

/// Makes `system` for so many threads over these descriptors, of which none is registered yet.
///
/// # Errors
/// The system's; a policy that is none.
pub fn open<'a>(
    system: &System,
    threads: usize,
    watched: &'a [Watched<'a>],
) -> io::Result<Box<dyn Demux + 'a>> {
    Ok(match system {
        System::Queue(policy) => Box::new(Queue::new(policy, watched)?),
        System::PerThread => Box::new(Epolls::per_thread(threads, watched)?),
        System::Shared => Box::new(Epolls::shared(watched)?),
        System::Exclusive => Box::new(Epolls::exclusive(threads, watched)?),
    })
}
