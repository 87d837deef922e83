//! Pipes, and readiness of any other descriptor. The interface is `std::io`'s where std has one.
//!
//! Waits leave the worker to other tasks; in an ordinary thread the thread sleeps. [`crate::timeout`] limits them, and
//! [`run_until_cancelled`](crate::sync::CancellationToken::run_until_cancelled) ends them.
//!
//! # Futures
//! The functions whose names end in `_async` are futures for any executor: they are cancel-safe, and any number may
//! wait for one descriptor. The `poll` functions are for implementations of traits; the waker of the latest poll of a
//! direction counts. With the features `futures-io` and `tokio-io`, pipes and sockets implement the `AsyncRead` and
//! `AsyncWrite` of these crates. Time limits and the mode of a handle concern blocking operations only; limit a future
//! by [`timeout_async`](crate::timeout_async).
//!
//! Standard input and output are std's: they may be files, which epoll cannot watch. Read them in
//! [`blocking`](crate::blocking()), so that other tasks run meanwhile:
//!
//! ```
//! let mut line = String::new();
//! heddle_rt::blocking(|| std::io::stdin().read_line(&mut line))?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod async_traits;
mod pipe;
mod pollable;
mod polled;

#[cfg(feature = "tokio-io")]
pub(crate) use async_traits::poll_read_buf;
pub(crate) use async_traits::{
    impl_async_read, impl_async_write, impl_futures_read, impl_futures_write,
};
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use pollable::Pollable;
#[cfg(any(feature = "hyper", feature = "tokio-io"))]
pub(crate) use polled::ReadUninit;
pub(crate) use polled::{Polled, Readiness, impl_descriptor, impl_read, impl_write, nonzero};
