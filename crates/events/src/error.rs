//! Errors.

use heddle_core::driver::Lacks;
use heddle_policies::PolicyError;
use std::io;
use thiserror::Error;

/// Why an operation on an [`EventQueue`](crate::EventQueue) failed. The operation changed nothing.
#[derive(Debug, Error)]
pub enum EventError {
    /// The policy is unknown, or one of its parameters is wrong.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// The policy needs something that threads which handle events cannot provide.
    #[error(
        "{0}: choose fifo, queue-affinity, cpu-affinity, best-of-two or hybrid, \
         or set `quantum=none` if it has a quantum"
    )]
    Lacks(Lacks),
    /// A number is out of range.
    #[error("{what} is {given}; it must be {allowed}")]
    Range {
        /// What the number is.
        what: &'static str,
        /// The number.
        given: u64,
        /// The allowed range.
        allowed: &'static str,
    },
    /// The queue holds as many events as it was built for.
    #[error("the queue is full: it was built for {0} events (EventQueueBuilder::capacity)")]
    Full(usize),
    /// The queue has as many workers as a policy can serve.
    #[error("the queue has {0} workers, which is the maximum")]
    Crowded(usize),
    /// The descriptor is already registered in this queue.
    #[error("descriptor {0} is already registered in this queue: change or end that registration")]
    Registered(i32),
    /// The registration has ended.
    #[error("the registration has ended")]
    Ended,
    /// There is no such process.
    #[error("there is no process {0}: it does not exist, or has ended and was waited for")]
    NoProcess(u32),
    /// The signal does not exist or cannot be caught.
    #[error(
        "signal {0} cannot be watched: SIGKILL, SIGSTOP, the C library's own signals and unknown numbers cannot"
    )]
    Signal(i32),
    /// The event is pinned to a thread that has left the queue.
    #[error("the thread that the event is pinned to has left the queue: register the event anew")]
    PinnedThreadGone,
    /// The queue is closed.
    #[error("the queue is closed")]
    Closed,
    /// The process was forked, and the queue belongs to its parent.
    #[error("the queue belongs to the parent process: a forked child must make its own")]
    Forked,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl EventError {
    /// Returns the error number that C programs get.
    #[must_use]
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            EventError::Policy(_)
            | EventError::Lacks(_)
            | EventError::Range { .. }
            | EventError::Signal(_) => Errno::INVAL,
            EventError::Full(_) => Errno::NOMEM,
            EventError::Crowded(_) => Errno::AGAIN,
            EventError::Registered(_) => Errno::EXIST,
            EventError::Ended => Errno::NOENT,
            EventError::PinnedThreadGone | EventError::NoProcess(_) => Errno::SRCH,
            EventError::Closed | EventError::Forked => Errno::BADF,
            EventError::System { source, .. } => {
                return source.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            }
        };
        errno.raw_os_error()
    }
}

/// For `map_err`: a system call failed while attempting `what`.
pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> EventError {
    move |source| EventError::System { what, source }
}
