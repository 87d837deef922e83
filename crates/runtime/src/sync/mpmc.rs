//! Channels with many senders and many receivers, in the shape of `std::sync::mpmc`. Each value reaches one receiver.
//!
//! ```
//! use heddle_rt::sync::mpmc;
//!
//! let (jobs, queue) = mpmc::sync_channel(4);
//! let workers: Vec<_> = (0..3)
//!     .map(|_| {
//!         let queue = queue.clone();
//!         heddle_rt::spawn(move || queue.iter().sum::<u64>())
//!     })
//!     .collect();
//! (1..=100).for_each(|job| jobs.send(job).unwrap());
//! drop(jobs);
//! assert_eq!(workers.into_iter().map(|worker| worker.join().unwrap()).sum::<u64>(), 5050);
//! ```

use super::channel::Channel;
use super::select::{SelectSend, receive_from_channel};
use crate::deadline::{deadline_after, deadline_at};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use super::channel::SendTimeoutError;
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// Sends into a channel; clone it for more senders.
pub struct Sender<T>(Arc<Channel<T>>);

/// Receives from a channel; clone it for more receivers.
pub struct Receiver<T>(Arc<Channel<T>>);

/// Makes a channel without a bound: sending never waits.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    pair(None)
}

/// Makes a channel that holds up to `bound` values; senders wait for room. With a bound of zero each `send` waits
/// until its value was received (a rendezvous).
pub fn sync_channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    pair(Some(bound))
}

fn pair<T>(bound: Option<usize>) -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel::new(bound));
    (Sender(channel.clone()), Receiver(channel))
}

impl<T> Sender<T> {
    /// Sends `value`, waiting for room if there is a bound, and with a bound of zero for a receiver.
    ///
    /// # Errors
    /// Returns `value` if all receivers are gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send(value)
    }

    /// Sends `value`; a future that waits for room if there is a bound, and with a bound of zero for a receiver. It is
    /// cancel-safe: if it is dropped before it is done, `value` was not sent, and is dropped with it.
    ///
    /// # Errors
    /// Returns `value` if all receivers are gone.
    pub async fn send_async(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send_async(value).await
    }

    /// Sends `value` if there is room, or with a bound of zero if a receiver waits (in a thread or a task; a future
    /// does not count, as it may be dropped).
    ///
    /// # Errors
    /// Returns `value` if there is no room or no receiver.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.0.try_send(value)
    }

    /// Like [`Sender::send`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// Returns `value` if that passed, or if all receivers are gone.
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.0.send_limited(value, deadline_after(timeout))
    }

    /// Like [`Sender::send`], waiting until `deadline` at most.
    ///
    /// # Errors
    /// Returns `value` if that passed, or if all receivers are gone.
    pub fn send_deadline(&self, value: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.0.send_limited(value, deadline_at(deadline))
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

    /// Receives the next value, waiting until `deadline` at most.
    ///
    /// # Errors
    /// If that passed, or if the channel is empty and all senders are gone.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.0.recv_limited(deadline_at(deadline))
    }

    /// Iterates over the values to come, until all senders are gone.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self)
    }

    /// Iterates over the values that can be received without waiting.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter(self)
    }
}

receive_from_channel!(Receiver);

impl<T> SelectSend for Sender<T> {
    type Item = T;

    fn channel(&self) -> &Channel<T> {
        &self.0
    }
}

macro_rules! side {
    ($side:ident, $add:ident, $remove:ident) => {
        impl<T> $side<T> {
            /// How many values are in the channel; may be out of date when it returns.
            pub fn len(&self) -> usize {
                self.0.len()
            }

            /// Whether the channel holds no value; may be out of date when it returns.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// How many values the channel may hold; `None` if it has no bound.
            pub fn capacity(&self) -> Option<usize> {
                self.0.bound()
            }

            /// Whether both belong to the same channel.
            pub fn same_channel(&self, other: &$side<T>) -> bool {
                Arc::ptr_eq(&self.0, &other.0)
            }
        }

        impl<T> Clone for $side<T> {
            fn clone(&self) -> Self {
                self.0.$add();
                $side(self.0.clone())
            }
        }

        impl<T> Drop for $side<T> {
            fn drop(&mut self) {
                self.0.$remove();
            }
        }

        impl<T> fmt::Debug for $side<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($side)).finish_non_exhaustive()
            }
        }
    };
}

side!(Sender, add_sender, drop_sender);
side!(Receiver, add_receiver, drop_receiver);

super::channel::iterators!(Receiver);
