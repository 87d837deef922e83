//! Pipes, and readiness of any other descriptor. The interface is `std::io`'s where std has one.
//!
//! Waits leave the worker to other tasks; in an ordinary thread the thread sleeps. [`crate::timeout`] limits them, and
//! [`run_until_cancelled`](crate::sync::CancellationToken::run_until_cancelled) ends them.
//!
//! Standard input and output are std's: they may be files, which epoll cannot watch. Read them in
//! [`blocking`](crate::blocking()), so that other tasks run meanwhile:
//!
//! ```
//! let mut line = String::new();
//! heddle_rt::blocking(|| std::io::stdin().read_line(&mut line))?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod pipe;
mod pollable;
mod polled;

pub use pipe::{PipeReader, PipeWriter, pipe};
pub use pollable::Pollable;
pub(crate) use polled::{Polled, impl_descriptor, impl_read, impl_write, nonzero};
