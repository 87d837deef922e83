//! A channel for one value, in the shape of `std::sync::oneshot`.
//!
//! ```
//! use heddle_rt::sync::oneshot;
//!
//! let (answer, question) = oneshot::channel();
//! heddle_rt::spawn(move || answer.send(6 * 7));
//! assert_eq!(question.recv(), Ok(42));
//! ```

use super::channel::Channel;
use super::select::receive_from_channel;
use crate::deadline::deadline_after;
use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::Duration;

pub use std::sync::mpsc::{RecvError, SendError};

/// Sends the value.
pub struct Sender<T>(Arc<Channel<T>>);

/// Receives the value. In a `select!` it is used by reference: `recv(receiver)`.
pub struct Receiver<T>(Arc<Channel<T>>);

/// Makes a channel for one value.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel::new(None));
    (Sender(channel.clone()), Receiver(channel))
}

/// The error of [`Receiver::try_recv`].
pub enum TryRecvError<T> {
    /// There is no value yet; the receiver, to try again.
    Empty(Receiver<T>),
    /// The sender is gone.
    Disconnected,
}

/// The error of [`Receiver::recv_timeout`].
pub enum RecvTimeoutError<T> {
    /// The time passed; the receiver, to try again.
    Timeout(Receiver<T>),
    /// The sender is gone.
    Disconnected,
}

impl<T> Sender<T> {
    /// Sends `value`. Never waits.
    ///
    /// # Errors
    /// Returns `value` if the receiver is gone.
    pub fn send(self, value: T) -> Result<(), SendError<T>> {
        self.0.send(value)
    }

    /// Whether the receiver is gone: computing the value may be a waste.
    pub fn is_closed(&self) -> bool {
        !self.0.has_receivers()
    }
}

impl<T> Receiver<T> {
    /// Waits for the value.
    ///
    /// # Errors
    /// If the sender is gone.
    pub fn recv(self) -> Result<T, RecvError> {
        self.0.recv()
    }

    /// Receives the value if it is there.
    ///
    /// # Errors
    /// If there is no value yet, or the sender is gone.
    pub fn try_recv(self) -> Result<T, TryRecvError<T>> {
        self.0.try_recv().map_err(|error| match error {
            mpsc::TryRecvError::Empty => TryRecvError::Empty(self),
            mpsc::TryRecvError::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// Waits for the value for at most `timeout`.
    ///
    /// # Errors
    /// If that passed, or the sender is gone.
    pub fn recv_timeout(self, timeout: Duration) -> Result<T, RecvTimeoutError<T>> {
        self.0.recv_limited(deadline_after(timeout)).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => RecvTimeoutError::Timeout(self),
            mpsc::RecvTimeoutError::Disconnected => RecvTimeoutError::Disconnected,
        })
    }
}

receive_from_channel!(Receiver);

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.drop_sender();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.drop_receiver();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for TryRecvError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryRecvError::Empty(_) => "Empty(..)",
            TryRecvError::Disconnected => "Disconnected",
        })
    }
}

impl<T> fmt::Debug for RecvTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecvTimeoutError::Timeout(_) => "Timeout(..)",
            RecvTimeoutError::Disconnected => "Disconnected",
        })
    }
}

impl<T> fmt::Display for TryRecvError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryRecvError::Empty(_) => "receiving on an empty oneshot channel",
            TryRecvError::Disconnected => "receiving on a oneshot channel whose sender is gone",
        })
    }
}

impl<T> fmt::Display for RecvTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecvTimeoutError::Timeout(_) => "timed out waiting on a oneshot channel",
            RecvTimeoutError::Disconnected => "receiving on a oneshot channel whose sender is gone",
        })
    }
}

impl<T> std::error::Error for TryRecvError<T> {}
impl<T> std::error::Error for RecvTimeoutError<T> {}
