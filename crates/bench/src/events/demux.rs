//! The three operations in which systems differ.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A watched descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// The non-blocking descriptor.
    pub fd: BorrowedFd<'a>,
    /// Whether it has high priority, if the system supports that.
    pub high: bool,
}

/// What a handler left unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// Nothing: the last read was short.
    Nothing,
    /// Perhaps something: deliver the event again.
    Perhaps,
}

/// Handles an event, given the number of its descriptor.
pub type Handler<'h> = dyn FnMut(usize) -> Remainder + 'h;

/// Threads that wait for the same descriptors.
pub trait Demux: Send + Sync {
    /// Starts watching descriptor `number`.
    ///
    /// # Errors
    /// System errors.
    fn register(&self, number: usize) -> io::Result<()>;

    /// Makes the calling thread a worker, number `thread`.
    ///
    /// # Errors
    /// System errors.
    fn worker(&self, thread: usize) -> io::Result<Box<dyn EventWorker + '_>>;
}

/// A worker's handle; it stays on its thread.
pub trait EventWorker {
    /// Waits up to `patience` and hands each event to `handle`; when that returns, the event is done and
    /// others can get the next.
    ///
    /// # Errors
    /// System errors.
    fn serve(&mut self, patience: Duration, handle: &mut Handler<'_>) -> io::Result<()>;
}
