//! What the two sides of a channel share.
//!
//! A bound of zero is a rendezvous: a sender puts its value into the empty queue and waits until it is taken. So the queue
//! of a rendezvous holds one value at most, and a sender whose receiver goes away finds its own value there.

use super::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use crate::sync::{Condvar, Mutex, MutexGuard};
use heddle_core::Ns;
use std::collections::VecDeque;
use std::time::Duration;

struct State<T> {
    queue: VecDeque<T>,
    senders: usize,
    receiver: bool,
    /// How many wait to receive.
    receiving: usize,
    /// Values received, of a rendezvous.
    taken: u64,
}

pub(super) struct Shared<T> {
    state: Mutex<State<T>>,
    /// Something to receive, or no sender left.
    filled: Condvar,
    /// Room to send, or no receiver left.
    drained: Condvar,
    /// A value of a rendezvous was received, or no receiver is left.
    met: Condvar,
    bound: Option<usize>,
}

impl<T> Shared<T> {
    /// A channel with one sender and one receiver, for `bound` values or any number.
    pub(super) fn new(bound: Option<usize>) -> Shared<T> {
        let state =
            State { queue: VecDeque::new(), senders: 1, receiver: true, receiving: 0, taken: 0 };
        Shared {
            state: Mutex::new(state),
            filled: Condvar::new(),
            drained: Condvar::new(),
            met: Condvar::new(),
            bound,
        }
    }

    pub(super) fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut state = self.state.lock();
        if let Some(bound) = self.bound {
            let full = |s: &mut State<T>| s.receiver && s.queue.len() >= bound.max(1);
            self.drained.wait_while(&mut state, full);
        }
        if !state.receiver {
            return Err(SendError(value));
        }
        state.queue.push_back(value);
        match self.bound {
            Some(0) => self.meet(state),
            _ => {
                drop(state);
                self.filled.notify_one();
                Ok(())
            }
        }
    }

    /// Waits until the value in the queue, which is the caller's, was received.
    fn meet(&self, mut state: MutexGuard<'_, State<T>>) -> Result<(), SendError<T>> {
        let before = state.taken;
        self.filled.notify_one();
        self.met.wait_while(&mut state, |s| s.receiver && s.taken == before);
        if state.taken != before {
            return Ok(());
        }
        let value = state.queue.pop_front().expect("a value that was not received is still there");
        Err(SendError(value))
    }

    pub(super) fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut state = self.state.lock();
        if !state.receiver {
            return Err(TrySendError::Disconnected(value));
        }
        let room = match self.bound {
            None => usize::MAX,
            // Whoever waits to receive takes it for certain.
            Some(0) => state.receiving,
            Some(bound) => bound,
        };
        if state.queue.len() >= room {
            return Err(TrySendError::Full(value));
        }
        state.queue.push_back(value);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// The next value of the queue.
    fn take(&self, mut state: MutexGuard<'_, State<T>>) -> Option<T> {
        let value = state.queue.pop_front()?;
        state.taken += 1;
        drop(state);
        if self.bound.is_some() {
            self.drained.notify_one();
        }
        if self.bound == Some(0) {
            self.met.notify_all();
        }
        Some(value)
    }

    pub(super) fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.state.lock();
        state.receiving += 1;
        self.filled.wait_while(&mut state, |s| s.queue.is_empty() && s.senders > 0);
        state.receiving -= 1;
        self.take(state).ok_or(RecvError)
    }

    pub(super) fn try_recv(&self) -> Result<T, TryRecvError> {
        let state = self.state.lock();
        let empty = match state.senders {
            0 => TryRecvError::Disconnected,
            _ => TryRecvError::Empty,
        };
        self.take(state).ok_or(empty)
    }

    pub(super) fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        let deadline = heddle_sys::clock::now() + Ns::from(timeout);
        let mut state = self.state.lock();
        state.receiving += 1;
        let mut in_time = true;
        while state.queue.is_empty() && state.senders > 0 && in_time {
            let left = deadline - heddle_sys::clock::now();
            in_time = self.filled.wait_for(&mut state, left.into());
        }
        state.receiving -= 1;
        let empty = match state.senders {
            0 => RecvTimeoutError::Disconnected,
            _ => RecvTimeoutError::Timeout,
        };
        self.take(state).ok_or(empty)
    }

    pub(super) fn add_sender(&self) {
        self.state.lock().senders += 1;
    }

    pub(super) fn drop_sender(&self) {
        let mut state = self.state.lock();
        state.senders -= 1;
        if state.senders == 0 {
            drop(state);
            self.filled.notify_all();
        }
    }

    /// Drops what was not received. A rendezvous' value goes back to its sender, which waits.
    pub(super) fn drop_receiver(&self) {
        let mut state = self.state.lock();
        state.receiver = false;
        let unread = match self.bound {
            Some(0) => VecDeque::new(),
            _ => std::mem::take(&mut state.queue),
        };
        drop(state);
        self.drained.notify_all();
        self.met.notify_all();
        // Last: the destructors are the user's.
        drop(unread);
    }
}
