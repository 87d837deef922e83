//! A request as its socket saw it.

use heddle_core::Ns;
use serde::{Deserialize, Serialize};

/// Why a thread was off its CPU while it worked on a request, by the system call in which it slept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Off {
    /// `futex`: a lock, or another thread's answer.
    pub futex: Ns,
    /// `nanosleep` and its kin.
    pub sleep: Ns,
    /// A read from another descriptor: a backend's socket, a pipe.
    pub read: Ns,
    /// A write.
    pub write: Ns,
    /// A file: `fsync`, `open`, `pread`.
    pub file: Ns,
    /// Anything else, a page fault for example.
    pub other: Ns,
}

impl Off {
    /// Returns the sum.
    #[must_use]
    pub fn total(&self) -> Ns {
        self.futex + self.sleep + self.read + self.write + self.file + self.other
    }
}

/// One request: from the moment its first byte could be read until the last byte of its answer was written.
///
/// All times are nanoseconds of `CLOCK_MONOTONIC`. What the thread did in between is charged to the request that it
/// worked on (the turn): `cpu + run_queue + off.total()` is at most `answered - received`; the rest passed while the
/// thread worked on others, or while nothing of this process did (an `await`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Span {
    /// The connection: the cookie of its socket; for a datagram of an unconnected socket, its peer's hash, or 0.
    pub connection: u64,
    /// The cookie of the socket whose queue it waited in before a thread took it: that of a datagram's socket. 0 for a
    /// stream: which listener a connection waited at is known only by who accepted it.
    pub queue: u64,
    /// The port that it came to.
    pub port: u16,
    /// When it arrived at the machine: the connection was established, if this is its first request and
    /// [`Span::first`]; else the same as `ready`.
    pub arrived: Ns,
    /// When its first byte could be read.
    pub ready: Ns,
    /// When a thread first read from it.
    pub received: Ns,
    /// When the last byte of its answer was written.
    pub answered: Ns,
    /// CPU time of the threads that worked on it.
    pub cpu: Ns,
    /// Time in which they were runnable and did not run.
    pub run_queue: Ns,
    /// Time in which they slept.
    pub off: Off,
    /// How long its reader, woken for it, was runnable before it ran and read it: a part of [`Span::wait`].
    pub wake_delay: Ns,
    /// The thread that read it.
    pub reader: u32,
    /// The thread that answered it.
    pub writer: u32,
    /// The process of the reader.
    pub process: u32,
    /// System calls that read from it.
    pub reads: u32,
    /// System calls that wrote its answer.
    pub writes: u32,
    /// Bytes read.
    pub bytes_in: u32,
    /// Bytes written.
    pub bytes_out: u32,
    /// Whether it is the first request of its connection.
    pub first: bool,
    /// Whether other requests were read by its thread before it was answered: an event loop, or a pipeline.
    pub overlapped: bool,
    /// Whether it was read before the request before it on the same connection was answered.
    pub pipelined: bool,
    /// Whether another thread than the reader answered, and nothing shows that the reader woke that thread.
    pub unconfirmed: bool,
}

impl Span {
    /// Returns how long it took from the socket's point of view.
    #[must_use]
    pub fn response(&self) -> Ns {
        self.answered - self.arrived
    }

    /// Returns how long it waited for a thread to take it.
    #[must_use]
    pub fn wait(&self) -> Ns {
        self.received - self.arrived
    }
}
