//! Limits of clients (time, memory and places), the same on every system, and how often each was hit.
//!
//! - [`watch`]: a connection records with one store what it waits for; a periodic sweep finds those that wait
//!   too long. So no handler reads a clock or sets a timer; a deadline is never early, and at most one
//!   [`ClientLimits::period`] late.
//! - [`memory`]: one account for all bytes that connections hold.
//! - [`spare`]: a descriptor in reserve, for refusing clients when there are no others.

mod memory;
mod spare;
mod watch;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(super) use memory::Reservation;
pub(super) use spare::Spare;
pub(super) use watch::{LastSweep, Waits, Watch};

/// Least time between two reports on standard error.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Limits of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// From the first byte of a request until all of it has arrived.
    pub request: Duration,
    /// While nothing moves: between two requests, or because the client does not read its replies.
    pub idle: Duration,
    /// Bytes of replies that a client must read per second, on average. Replies that are written together
    /// have [`ClientLimits::idle`] plus a second for each `reply_rate` bytes; otherwise a byte now and then
    /// would keep them forever.
    pub reply_rate: usize,
    /// From the server's last reply until the client closes.
    pub linger: Duration,
    /// Bytes of requests and replies that all connections together may hold, beyond [`ClientLimits::OWN`] each.
    pub memory: usize,
    /// Most bytes of requests and replies of a single connection.
    pub connection_memory: usize,
    /// Bytes of keys, values and entries in an in-memory store; a write that would exceed it fails.
    pub store_memory: usize,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits {
            request: Duration::from_secs(30),
            idle: Duration::from_secs(300),
            reply_rate: 16 << 10,
            linger: Duration::from_secs(5),
            memory: 512 << 20,
            connection_memory: 128 << 20,
            store_memory: 4 << 30,
        }
    }
}

impl ClientLimits {
    /// Bytes that a connection may always hold, so that clients that take all memory do not lock out short requests.
    pub const OWN: usize = 16 << 10;

    /// How long a client may take for `bytes` of replies.
    fn batch(&self, bytes: u64) -> Duration {
        self.idle.saturating_add(Duration::from_secs_f64(bytes as f64 / self.reply_rate as f64))
    }

    /// Time between two sweeps.
    pub(super) fn period(&self) -> Duration {
        let shortest = self.request.min(self.idle).min(self.linger);
        (shortest / 4).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }
}

macro_rules! limits {
    ($($(#[$doc:meta])* $limit:ident = $name:literal,)*) => {
        /// A limit that clients may hit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Limit { $($(#[$doc])* $limit,)* }

        impl Limit {
            /// Every limit.
            pub const ALL: [Limit; [$($name),*].len()] = [$(Limit::$limit),*];

            /// The name in INFO.
            pub fn name(self) -> &'static str {
                match self { $(Limit::$limit => $name,)* }
            }
        }
    };
}

limits! {
    /// [`ClientLimits::request`].
    Request = "request",
    /// [`ClientLimits::idle`], between requests.
    Idle = "idle",
    /// [`ClientLimits::idle`], with replies that the client does not read.
    Reply = "reply",
    /// [`ClientLimits::reply_rate`].
    ReplyRate = "reply_rate",
    /// [`ClientLimits::linger`].
    Linger = "linger",
    /// [`ClientLimits::memory`].
    Memory = "memory",
    /// [`ClientLimits::connection_memory`].
    ConnectionMemory = "connection_memory",
    /// [`ClientLimits::store_memory`].
    StoreMemory = "store_memory",
    /// The most connections.
    Connections = "connections",
    /// The process's descriptors.
    Descriptors = "descriptors",
}

/// The limits of one server, the memory in use, and how often each limit was hit.
pub(super) struct Bounds {
    pub(super) limits: ClientLimits,
    max_connections: usize,
    held: memory::Total,
    hits: [AtomicU64; Limit::ALL.len()],
    reported: Mutex<(Instant, [u64; Limit::ALL.len()])>,
}

impl Bounds {
    pub(super) fn new(limits: ClientLimits, max_connections: usize) -> Arc<Bounds> {
        let reported = Mutex::new((Instant::now(), Default::default()));
        let (held, hits) = (memory::Total::default(), Default::default());
        Arc::new(Bounds { limits, max_connections, held, hits, reported })
    }

    /// Counts that `limit` was hit.
    pub(super) fn hit(&self, limit: Limit) {
        self.hits[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often `limit` was hit.
    pub(super) fn hits(&self, limit: Limit) -> u64 {
        self.hits[limit as usize].load(Ordering::Relaxed)
    }

    /// The limits hit since the start, in words; `None` if none was.
    pub(super) fn summary(&self) -> Option<String> {
        self.in_words(&Limit::ALL.map(|limit| self.hits(limit)))
    }

    /// Prints what was hit since the last report to standard error, unless that was less than
    /// [`REPORT_INTERVAL`] ago. The sweep calls it.
    pub(super) fn report_hits(&self, now: Instant) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, before) = (Limit::ALL.map(|limit| self.hits(limit)), reported.1);
        // The first hit is reported at once.
        let is_due =
            before == [0; Limit::ALL.len()] || now.duration_since(reported.0) >= REPORT_INTERVAL;
        if is_due && all != before {
            *reported = (now, all);
            let new: Vec<u64> = all.iter().zip(before).map(|(all, before)| all - before).collect();
            if let Some(words) = self.in_words(&new) {
                eprintln!("limits hit: {words}");
            }
        }
    }

    fn in_words(&self, counts: &[u64]) -> Option<String> {
        let all = Limit::ALL.into_iter().zip(counts).filter(|(_, count)| **count > 0);
        let words: Vec<String> =
            all.map(|(limit, count)| format!("{count} {}", self.means(limit))).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// What happened, and the option that raises the limit.
    fn means(&self, limit: Limit) -> String {
        let ClientLimits { request, idle, reply_rate, linger, .. } = self.limits;
        let ClientLimits { memory, connection_memory, store_memory, .. } = self.limits;
        match limit {
            Limit::Request => format!("requests not whole within {request:?} (--request-timeout)"),
            Limit::Idle => format!("connections idle for {idle:?} (--idle-timeout)"),
            Limit::Reply => format!("replies not read for {idle:?} (--idle-timeout)"),
            Limit::ReplyRate => {
                format!("replies read at less than {reply_rate} bytes a second (--reply-rate)")
            }
            Limit::Linger => format!("not closed within {linger:?} (--linger-timeout)"),
            Limit::Memory => format!("beyond {memory} bytes held in all (--memory)"),
            Limit::ConnectionMemory => {
                format!("beyond {connection_memory} bytes on a connection (--connection-memory)")
            }
            Limit::StoreMemory => {
                format!("not stored beyond {store_memory} bytes (--store-memory)")
            }
            Limit::Connections => {
                format!("beyond {} connections (--max-connections)", self.max_connections)
            }
            Limit::Descriptors => "without a descriptor (ulimit -n)".into(),
        }
    }

    /// The error text for a client that hit `limit`.
    pub(super) fn explain(&self, limit: Limit) -> impl fmt::Display {
        let ClientLimits { request, connection_memory, .. } = self.limits;
        match limit {
            Limit::Request => format!("the request did not come whole within {request:?}"),
            Limit::Memory => "the server holds as many bytes as it may; try again later".into(),
            Limit::ConnectionMemory => {
                format!("a connection may hold {connection_memory} bytes of requests and replies")
            }
            other => format!("limit of {}", other.name()),
        }
    }
}
