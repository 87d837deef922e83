//! The shared memory: one part that the broker writes, and one for each application.
//!
//! Every member maps the broker's part and the parts of all others for reading, and its own for writing. The memory
//! holds numbers only. A reader masks what it reads, and indexes by its own numbers.
//!
//! ```text
//! broker's part:  BrokerHeader | AppEntry x 32
//! member's part:  AppHeader | CpuSlot of CPU 0, 1, ...
//! ```

use std::mem::size_of;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Begins each part.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HEDLSHR1");
/// The version of this layout. A member of another version is refused.
pub const VERSION: u32 = 3;
/// The most applications of a share: a waiter is a bit of a futex's set.
pub const APPS: usize = 32;
/// The most CPUs of a share: their descriptors travel in one message.
pub const CPUS: usize = 200;

/// Priorities that a share needs above its lowest one.
pub const PRIORITIES: u32 = 5;

/// Returns the priority of the active workers of a member of this rank, in a share whose lowest priority is `lowest`:
/// those of the first rank preempt all others.
#[must_use]
pub const fn active_priority(lowest: u32, rank: u32) -> u32 {
    match rank {
        0 => lowest + 2,
        _ => lowest,
    }
}

/// Returns whether the kernel runs the real-time threads of a member of this rank before those of one of rank `other`,
/// whatever those do.
#[must_use]
pub const fn preempts(rank: u32, other: u32) -> bool {
    active_priority(0, rank) > active_priority(0, other)
}

/// Returns the priority of a worker that sleeps and has equals, so that what wakes it is heard at once; `active` is
/// that of an active one.
#[must_use]
pub const fn raised_priority(active: u32) -> u32 {
    active + 1
}

/// Returns the priority of threads that look after workers of a member of this rank, and must run whatever those do:
/// the highest that it may have.
#[must_use]
pub const fn helper_priority(lowest: u32, rank: u32) -> u32 {
    match rank {
        0 => lowest + 4,
        _ => raised_priority(lowest),
    }
}

/// Returns the priority of the broker.
#[must_use]
pub const fn broker_priority(lowest: u32) -> u32 {
    lowest + PRIORITIES
}

/// The start of the broker's part.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct BrokerHeader {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The lowest real-time priority; 0 if the broker may not grant one. See [`active_priority`].
    pub priority: AtomicU32,
    /// A bit for each application that takes part.
    pub members: AtomicU32,
    /// How long a member with weight 1024 keeps a CPU for which others of its rank wait, nanoseconds.
    pub slice: AtomicU64,
}

/// What the broker says of an application.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct AppEntry {
    /// Its process.
    pub pid: AtomicU32,
    /// Members of a lower rank go first.
    pub rank: AtomicU32,
    /// Its share among those of its rank; 1024 is the usual one.
    pub weight: AtomicU32,
}

/// The start of a member's part.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct AppHeader {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
}

/// One CPU, as one member sees it. The member's worker for that CPU writes it.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct CpuSlot {
    /// A [`State`](crate::handover::State) and a count of its changes: the word on which others sleep.
    pub state: AtomicU32,
    /// The application on whose word the worker sleeps; [`NO_APP`](crate::handover::NO_APP).
    pub waits_on: AtomicU32,
    /// When the state began, by `CLOCK_MONOTONIC`, nanoseconds.
    pub since: AtomicU64,
    /// The worker's kernel thread.
    pub tid: AtomicU32,
    /// Times that it became active.
    pub switches: AtomicU64,
    /// How many of its own hand-overs broke the Single Binding Rule (Skyloft, section 3.3): the next worker ran before
    /// this one slept.
    pub broken: AtomicU64,
    /// Requests to others to make way, and to this one.
    pub asked: AtomicU64,
    /// Times that it made way while it had work.
    pub made_way: AtomicU64,
    /// Times that it took the CPU from an active member whose thread slept in the kernel.
    pub stood_in: AtomicU64,
    /// Nanoseconds for which it was active, up to `since`, without those in which a better one preempted it.
    pub active_ns: AtomicU64,
    /// The CPU time of the worker when it became active, if it can be preempted.
    pub cpu_time_then: AtomicU64,
    /// Nanoseconds for which it wanted the CPU and waited, up to `since`, and the longest such wait.
    pub waited_ns: AtomicU64,
    /// See `waited_ns`.
    pub longest_wait_ns: AtomicU64,
}

/// Bytes of a page of memory.
const PAGE: usize = 4096;

/// The bytes of the broker's part.
pub const BROKER_SIZE: usize =
    (size_of::<BrokerHeader>() + APPS * size_of::<AppEntry>()).next_multiple_of(PAGE);

/// Returns the bytes of a member's part for so many CPUs.
#[must_use]
pub const fn app_size(cpus: usize) -> usize {
    (size_of::<AppHeader>() + cpus * size_of::<CpuSlot>()).next_multiple_of(PAGE)
}
