//! The page in which a process shows its counters, histograms and events to other processes of its user, and their side
//! of it. `docs/design/observe.md` is the design.
//!
//! A process makes a [`Page`]: a file in memory, sealed in size, which it maps. It counts there ([`Counter`],
//! [`heddle_core::AtomicHistogram`]) instead of in memory of its own, so that showing costs nothing. Its events go into
//! rings ([`RingWriter`]) while a reader wants them. A [`Reader`] finds the page in `/proc/PID/fd`
//! ([`find()`], [`scan`]), maps it and looks when it likes; nothing listens, and no thread of the process does anything
//! for it.
//!
//! ```
//! use heddle_telemetry::{Layout, Page};
//!
//! let counters = [("heddle_example_requests_total", "worker=0")];
//! let page = Page::create(&Layout { counters: &counters, ..Layout::default() })?;
//! page.counter(0).add(3);
//!
//! let found = heddle_telemetry::find(std::process::id())?;
//! let shown = found.iter().flat_map(|reader| reader.counters());
//! assert!(shown.into_iter().any(|counter| counter.value == 3));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Invariants
//!
//! - **I1** Neither side trusts the page, because the other side may write anything into it. What is read there is a
//!   number, and never an address; the reader checks the numbers that make up the layout once, and keeps its own copy.
//! - **I2** Everything shared is an atomic of 4 or 8 bytes in mapped memory, which is as large as the layout says while
//!   any reference to it exists; the file is sealed, so that no process can shorten it.
//! - **I3** A writer never waits, locks, allocates or calls the system.
//! - **I4** A child of a fork has zeroed memory of its own in place of its parent's page.

mod atomic {
    #[cfg(not(loom))]
    pub use core::sync::atomic::{AtomicU64, Ordering, fence};
    #[cfg(loom)]
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod counter;
#[cfg(not(loom))]
mod counters;
#[cfg(not(loom))]
mod find;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod names;
#[cfg(not(loom))]
mod page;
#[cfg(not(loom))]
mod reader;
mod ring;

#[cfg(not(loom))]
pub use counter::Counter;
#[cfg(not(loom))]
pub use counters::Counters;
#[cfg(not(loom))]
pub use find::{find, scan};
#[cfg(not(loom))]
pub use layout::{Layout, WORKERS_APART, of_workers};
#[cfg(not(loom))]
pub use page::{Page, RingWriter, is_wanted};
#[cfg(not(loom))]
pub use reader::{Batch, Cursor, Metric, Reader};
