//! Channels in the shape of [`std::sync::mpsc`]: many senders, one receiver, in order.
//!
//! ```
//! use heddle_rt::sync::mpsc;
//! use std::time::Duration;
//!
//! let (orders, shop) = mpsc::sync_channel(16);
//! heddle_rt::spawn(move || orders.send("tea"));
//! assert_eq!(shop.recv(), Ok("tea"));
//! assert_eq!(shop.recv_timeout(Duration::from_secs(1)), Err(mpsc::RecvTimeoutError::Disconnected));
//! ```
//!
//! For more than one receiver use [`mpmc`](super::mpmc), for a single value [`oneshot`](super::oneshot); to wait on
//! several channels, [`select!`](crate::select).

use super::channel::Channel;
use super::select::{SelectSend, receive_from_channel};
use crate::deadline::deadline_after;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use super::channel::SendTimeoutError;
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// Sends into a [`channel`]; clone it for more senders.
pub struct Sender<T>(Arc<Channel<T>>);

/// Sends into a [`sync_channel`]; clone it for more senders.
pub struct SyncSender<T>(Arc<Channel<T>>);

/// Receives from a channel.
pub struct Receiver<T>(Arc<Channel<T>>);

/// Makes a channel without a bound: sending never waits. If senders are faster than the receiver for long, the queue
/// grows for as long: a [`sync_channel`] makes them wait.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel::new(None));
    (Sender(channel.clone()), Receiver(channel))
}

/// Makes a channel that holds up to `bound` values; senders wait for room. With a bound of zero each `send` waits
/// until its value was received (a rendezvous).
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let channel = Arc::new(Channel::new(Some(bound)));
    (SyncSender(channel.clone()), Receiver(channel))
}

impl<T> Sender<T> {
    /// Sends `value`.
    ///
    /// # Errors
    /// Returns `value` if the receiver is gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send(value)
    }
}

impl<T> SyncSender<T> {
    /// Sends `value`, waiting for room, or with a bound of zero for the receiver.
    ///
    /// # Errors
    /// Returns `value` if the receiver is gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send(value)
    }

    /// Sends `value`; a future that waits for room, or with a bound of zero for the receiver. It is cancel-safe: if it
    /// is dropped before it is done, `value` was not sent, and is dropped with it.
    ///
    /// # Errors
    /// Returns `value` if the receiver is gone.
    pub async fn send_async(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send_async(value).await
    }

    /// Sends `value` if there is room, or with a bound of zero if the receiver waits (in a thread or a task; a future
    /// does not count, as it may be dropped).
    ///
    /// # Errors
    /// Returns `value` if there is no room or no receiver.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.0.try_send(value)
    }

    /// Like [`SyncSender::send`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// Returns `value` if that passed, or if the receiver is gone.
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.0.send_limited(value, deadline_after(timeout))
    }
}

impl<T> Receiver<T> {
    /// Receives the next value, waiting for one.
    ///
    /// # Errors
    /// If the channel is empty and all senders are gone.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.0.recv()
    }

    /// Receives the next value; a future that waits for one. It is cancel-safe: a value is received in the poll that
    /// returns it.
    ///
    /// ```
    /// let (orders, shop) = heddle_rt::sync::mpsc::sync_channel(1);
    /// heddle_rt::spawn(move || orders.send("tea"));
    /// assert_eq!(heddle_rt::block_on(shop.recv_async()), Ok("tea"));
    /// ```
    ///
    /// # Errors
    /// If the channel is empty and all senders are gone.
    pub async fn recv_async(&self) -> Result<T, RecvError> {
        self.0.recv_async().await
    }

    /// Receives the next value if there is one.
    ///
    /// # Errors
    /// If the channel is empty; the error tells whether all senders are gone.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.try_recv()
    }

    /// Receives the next value, waiting for at most `timeout`.
    ///
    /// # Errors
    /// If that passed, or if the channel is empty and all senders are gone.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.0.recv_limited(deadline_after(timeout))
    }

    /// Iterates over the values to come, until all senders are gone.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self)
    }

    /// Iterates over the values that can be received without waiting.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter(self)
    }

    /// The channel, for waits that the runtime limits in its own ways.
    pub(crate) fn channel(&self) -> &Channel<T> {
        &self.0
    }
}

receive_from_channel!(Receiver);

macro_rules! sender {
    ($sender:ident) => {
        impl<T> SelectSend for $sender<T> {
            type Item = T;

            fn channel(&self) -> &Channel<T> {
                &self.0
            }
        }

        impl<T> Clone for $sender<T> {
            fn clone(&self) -> Self {
                self.0.add_sender();
                $sender(self.0.clone())
            }
        }

        impl<T> Drop for $sender<T> {
            fn drop(&mut self) {
                self.0.drop_sender();
            }
        }

        impl<T> fmt::Debug for $sender<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($sender)).finish_non_exhaustive()
            }
        }
    };
}

sender!(Sender);
sender!(SyncSender);

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.drop_receiver();
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

super::channel::iterators!(Receiver);
