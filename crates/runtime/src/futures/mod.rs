//! Async tasks: futures that a policy schedules like threads, and whose polls are preempted like threads.
//!
//! The design, with measurements and the decisions about semantics, is in `docs/design/async.md`.

mod error;
mod handle;
mod spawn;
mod typed;

pub use error::JoinError;
pub use handle::{AbortHandle, JoinHandle};
pub use spawn::{Builder, YieldNow, spawn, yield_now};

#[cfg(all(virtual_time, feature = "trace"))]
pub(crate) use spawn::spawn_at_home;
