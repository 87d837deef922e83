//! Channels: many senders, one receiver, in order.

use super::{Condvar, Mutex};
use heddle_core::Ns;
use std::collections::VecDeque;
use std::sync::Arc;
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Duration;

struct State<T> {
    queue: VecDeque<T>,
    senders: usize,
    receiver: bool,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Something to receive, or no sender left.
    filled: Condvar,
    /// Room to send, or no receiver left.
    drained: Condvar,
    capacity: usize,
}

/// Sends into a channel; clone it for more senders.
pub struct Sender<T>(Arc<Shared<T>>);

/// Receives from a channel.
pub struct Receiver<T>(Arc<Shared<T>>);

/// A channel that holds up to `capacity` values (at least one); senders wait for room.
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State { queue: VecDeque::new(), senders: 1, receiver: true }),
        filled: Condvar::new(),
        drained: Condvar::new(),
        capacity: capacity.max(1),
    });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    /// Sends `value`, waiting for room.
    ///
    /// # Errors
    /// Gives `value` back if the receiver is gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state.lock();
        self.0.drained.wait_while(&mut state, |s| s.receiver && s.queue.len() >= self.0.capacity);
        if !state.receiver {
            return Err(SendError(value));
        }
        state.queue.push_back(value);
        drop(state);
        self.0.filled.notify_one();
        Ok(())
    }

    /// Sends `value` if there is room.
    ///
    /// # Errors
    /// Gives `value` back if there is no room or no receiver.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.state.lock();
        if !state.receiver {
            return Err(TrySendError::Disconnected(value));
        }
        if state.queue.len() >= self.0.capacity {
            return Err(TrySendError::Full(value));
        }
        state.queue.push_back(value);
        drop(state);
        self.0.filled.notify_one();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.senders -= 1;
        if state.senders == 0 {
            drop(state);
            self.0.filled.notify_all();
        }
    }
}

impl<T> Receiver<T> {
    /// Receives the next value, waiting for one.
    ///
    /// # Errors
    /// When the channel is empty and all senders are gone.
    pub fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.0.state.lock();
        self.0.filled.wait_while(&mut state, |s| s.queue.is_empty() && s.senders > 0);
        let value = state.queue.pop_front().ok_or(RecvError)?;
        drop(state);
        self.0.drained.notify_one();
        Ok(value)
    }

    /// Receives the next value if there is one.
    ///
    /// # Errors
    /// When the channel is empty, and whether all senders are gone.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.state.lock();
        let Some(value) = state.queue.pop_front() else {
            return Err(if state.senders > 0 {
                TryRecvError::Empty
            } else {
                TryRecvError::Disconnected
            });
        };
        drop(state);
        self.0.drained.notify_one();
        Ok(value)
    }

    /// Receives the next value, waiting for at most `timeout`.
    ///
    /// # Errors
    /// When that passed, or when the channel is empty and all senders are gone.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        let deadline = heddle_sys::clock::now() + Ns::from(timeout);
        let mut state = self.0.state.lock();
        while state.queue.is_empty() && state.senders > 0 {
            let left = deadline - heddle_sys::clock::now();
            if !self.0.filled.wait_for(&mut state, left.into()) && state.queue.is_empty() {
                return Err(RecvTimeoutError::Timeout);
            }
        }
        let value = state.queue.pop_front().ok_or(RecvTimeoutError::Disconnected)?;
        drop(state);
        self.0.drained.notify_one();
        Ok(value)
    }

    /// The values to come, until all senders are gone.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.receiver = false;
        let unread = std::mem::take(&mut state.queue);
        drop(state);
        drop(unread);
        self.0.drained.notify_all();
    }
}
