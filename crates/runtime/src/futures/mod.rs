//! Async tasks: futures that a policy schedules like threads, and whose polls are preempted like threads.
//!
//! The design, with measurements and the decisions about semantics, is in `docs/design/async.md`.

mod blocking;
mod foreign;
mod handle;
mod join_set;
mod local;
mod spawn;

pub use crate::carrier::error::JoinError;
pub use blocking::spawn_blocking;
pub use handle::{AbortHandle, JoinHandle};
pub use join_set::JoinSet;
pub use local::{LocalJoinHandle, LocalSet, spawn_local};
pub use spawn::{Builder, YieldNow, spawn, yield_now};

#[doc(hidden)]
pub use foreign::{ForeignTask, PollFn};
pub(crate) use spawn::spawn_borrowing;

#[cfg(virtual_time)]
pub(crate) use spawn::spawn_at_home;

#[cfg(test)]
mod tests;
