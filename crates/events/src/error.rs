//! What can go wrong.

use heddle_core::driver::Lacks;
use heddle_policies::PolicyError;
use std::io;
use thiserror::Error;

/// Why an operation on an [`crate::EventQueue`] was refused. Nothing was changed by it.
#[derive(Debug, Error)]
pub enum EventError {
    /// The policy is unknown, or a parameter of it is wrong.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// The policy needs what threads that handle events cannot do for it.
    #[error(
        "{0}: choose fifo, queue-affinity, cpu-affinity, best-of-two or hybrid, or set `quantum=none` if it has a quantum"
    )]
    Lacks(Lacks),
    /// A number is out of its range.
    #[error("{what} is {given}; it must be {allowed}")]
    Range {
        /// What the number is.
        what: &'static str,
        /// What was given.
        given: u64,
        /// What may be given.
        allowed: &'static str,
    },
    /// There are as many events as the queue was built for.
    #[error(
        "the queue holds {0} events, which is all it was built for (EventQueueBuilder::capacity)"
    )]
    Full(usize),
    /// As many threads as a policy can serve wait on the queue already.
    #[error("the queue serves {0} threads, which is the most")]
    Crowded(usize),
    /// The descriptor is registered in this queue already.
    #[error("descriptor {0} is registered in this queue already; change or end that registration")]
    Registered(i32),
    /// The registration has ended.
    #[error("the registration has ended")]
    Ended,
    /// There is no process of this number.
    #[error("there is no process {0}; one that has ended and was waited for is gone")]
    NoProcess(u32),
    /// A signal of this number does not exist or cannot be caught.
    #[error(
        "signal {0} cannot be told: SIGKILL, SIGSTOP, those of the C library and unknown numbers cannot"
    )]
    Signal(i32),
    /// The event was pinned to a thread that has left the queue.
    #[error(
        "the thread that the event is pinned to has left the queue; pin it to another or register it anew"
    )]
    PinnedThreadGone,
    /// The queue was closed.
    #[error("the queue is closed")]
    Closed,
    /// The process has forked, and the queue belongs to the parent.
    #[error("the queue belongs to the process that forked this one; a child makes its own")]
    Forked,
    /// The system refused.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl EventError {
    /// The number by which C programs know the error.
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

/// For `map_err`: the system refused `what`.
pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> EventError {
    move |source| EventError::System { what, source }
}
