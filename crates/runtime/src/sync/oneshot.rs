//! A channel for one value, in the shape of `std::sync::oneshot`.
//!
//! ```
//! use heddle_rt::sync::oneshot;
//!
//! let (answer, question) = oneshot::channel();
//! heddle_rt::spawn(move || answer.send(6 * 7));
//! assert_eq!(question.recv(), Ok(42));
//! ```
//!
//! A [`Receiver`] is also a future. It is cancel-safe: the value is received in the poll that returns it, so a receiver
//! that was polled by reference and is pending can be used further.
//!
//! ```
//! # use heddle_rt::sync::oneshot;
//! let (answer, question) = oneshot::channel();
//! heddle_rt::spawn(move || answer.send(6 * 7));
//! assert_eq!(heddle_rt::block_on(question), Ok(42));
//! ```

use super::channel::Channel;
use super::select::receive_from_channel;
use crate::deadline::deadline_after;
use crate::preempt::NoPreempt;
use heddle_sync::WakerSlot;
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub use std::sync::mpsc::{RecvError, SendError};

/// The channel, and the waker of a receiver that was polled.
struct Shared<T> {
    channel: Channel<T>,
    waker: WakerSlot<Waker>,
}

impl<T> Deref for Shared<T> {
    type Target = Channel<T>;

    fn deref(&self) -> &Channel<T> {
        &self.channel
    }
}

impl<T> Shared<T> {
    /// Wakes the future. The caller has changed the channel under its lock, so one that was polled before that is in
    /// the slot, and one that is polled later sees the change.
    #[inline]
    fn wake_future(&self) {
        if self.waker.is_set()
            && let Some(waker) = self.take_waker()
        {
            waker.wake();
        }
    }

    fn take_waker(&self) -> Option<Waker> {
        let _guard = NoPreempt::new();
        self.waker.take()
    }
}

/// Sends the value.
pub struct Sender<T>(Arc<Shared<T>>);

/// Receives the value. In a `select!` it is used by reference: `recv(receiver)`.
pub struct Receiver<T>(Arc<Shared<T>>);

/// Makes a channel for one value.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Shared { channel: Channel::new(None), waker: WakerSlot::new() });
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
        let sent = self.0.send(value);
        self.0.wake_future();
        sent
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
        self.0.wake_future();
    }
}

/// Receives the value. Ready with an error if the sender is gone, or if the value was received.
impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        // A look before the waker is cloned, and one after it is in the slot.
        let shared = &self.0;
        let is_there = {
            let _guard = NoPreempt::new();
            shared.waker.holds(|own| own.will_wake(cx.waker()))
        };
        for is_last in [is_there, true] {
            match shared.try_recv() {
                Ok(value) => return Poll::Ready(Ok(value)),
                Err(mpsc::TryRecvError::Disconnected) => return Poll::Ready(Err(RecvError)),
                Err(mpsc::TryRecvError::Empty) if is_last => break,
                Err(mpsc::TryRecvError::Empty) => {}
            }
            let waker = cx.waker().clone();
            let guard = NoPreempt::new();
            let before = shared.waker.put(waker);
            drop(guard);
            drop(before);
        }
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.drop_receiver();
        drop(self.0.take_waker());
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
