//! Channels in the shape of [`std::sync::mpsc`]: many senders, one receiver, in order.
//!
//! ```no_run
//! use heddle_rt::sync::mpsc;
//! let (orders, shop) = mpsc::sync_channel(16);
//! heddle_rt::spawn(move || orders.send("tea"));
//! assert_eq!(shop.recv(), Ok("tea"));
//! ```

mod shared;

use shared::Shared;
use std::fmt;
use std::sync::Arc;
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Duration;

/// Sends into a [`channel`]; clone it for more senders.
pub struct Sender<T>(Arc<Shared<T>>);

/// Sends into a [`sync_channel`]; clone it for more senders.
pub struct SyncSender<T>(Arc<Shared<T>>);

/// Receives from a channel.
pub struct Receiver<T>(Arc<Shared<T>>);

/// A channel without a bound: sending never waits. Where senders may be faster than the receiver for long, the queue
/// grows for as long: a [`sync_channel`] makes them wait.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared::new(None));
    (Sender(shared.clone()), Receiver(shared))
}

/// A channel that holds up to `bound` values; senders wait for room. With a bound of zero each `send` waits until its value
/// was received (a rendezvous).
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let shared = Arc::new(Shared::new(Some(bound)));
    (SyncSender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    /// Sends `value`.
    ///
    /// # Errors
    /// Gives `value` back if the receiver is gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send(value)
    }
}

impl<T> SyncSender<T> {
    /// Sends `value`, waiting for room, or with a bound of zero for the receiver.
    ///
    /// # Errors
    /// Gives `value` back if the receiver is gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send(value)
    }

    /// Sends `value` if there is room, or with a bound of zero if the receiver waits.
    ///
    /// # Errors
    /// Gives `value` back if there is no room or no receiver.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.0.try_send(value)
    }
}

impl<T> Receiver<T> {
    /// Receives the next value, waiting for one.
    ///
    /// # Errors
    /// When the channel is empty and all senders are gone.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.0.recv()
    }

    /// Receives the next value if there is one.
    ///
    /// # Errors
    /// When the channel is empty, and whether all senders are gone.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.try_recv()
    }

    /// Receives the next value, waiting for at most `timeout`.
    ///
    /// # Errors
    /// When that passed, or when the channel is empty and all senders are gone.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.0.recv_timeout(timeout)
    }

    /// The values to come, until all senders are gone.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self)
    }

    /// The values that are there.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter(self)
    }
}

/// See [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T>(&'a Receiver<T>);

/// See [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T>(&'a Receiver<T>);

/// The values to come, until all senders are gone, by a receiver of its own.
#[derive(Debug)]
pub struct IntoIter<T>(Receiver<T>);

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.add_sender();
        Sender(self.0.clone())
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> Self {
        self.0.add_sender();
        SyncSender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.drop_sender();
    }
}

impl<T> Drop for SyncSender<T> {
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

impl<T> fmt::Debug for SyncSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncSender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
