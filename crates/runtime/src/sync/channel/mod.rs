//! The core of every channel: a queue under a mutex, with or without a bound, and the parties that wait on it.
//!
//! # Waiting
//! A plain operation waits on a condition variable, and so does a future ([`futures`]); a [`select!`](crate::select)
//! has an entry in a list of the state ([`Selectors`]). Each event (a value, a free place) wakes one party of both
//! kinds. The one that comes second finds nothing and waits again; no event is missed by a party that could use it.
//!
//! # Places that are promised
//! A `select!` chooses a send before it evaluates the value. `reserved` counts the places that are promised this way:
//! they count as taken until the value comes or the promise is withdrawn.
//!
//! # Rendezvous
//! With a bound of zero a sender waits until its value is received. A plain `send` puts its value into the empty
//! queue and waits there. All others (`try_send`, an arm of a `select!`) need a receiver that takes their value for
//! certain: `receiving` counts these. It is kept that
//!
//! > values in the queue + promised places <= `receiving`, not counting a plain `send`'s value at the front.
//!
//! A receiver that waits in `recv` is counted while it waits. One in a `select!` is counted by the sender that claims
//! it ([`Claim::Committed`](super::select::Claim)), a sender in a `select!` gets its place from the receiver that
//! claims it. A counted receiver leaves only if the sum allows it, or takes a value.

mod futures;
mod iterators;
mod rendezvous;

pub(crate) use iterators::iterators;

use super::select::{Claimed, Selection, Selectors};
use super::waiter::Limit;
use super::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

pub struct Channel<T> {
    state: Mutex<State<T>>,
    /// Something to receive, or no sender left; in a rendezvous also a promise that was withdrawn.
    filled: Condvar,
    /// Room to send, or no receiver left.
    drained: Condvar,
    /// A value of a rendezvous was received, or no receiver is left.
    met: Condvar,
    bound: Option<usize>,
}

struct State<T> {
    queue: VecDeque<T>,
    senders: usize,
    receivers: usize,
    /// Waiting receivers; see the module's text for a rendezvous.
    receiving: usize,
    /// Places promised to senders.
    reserved: usize,
    /// Values received, of a rendezvous.
    taken: u64,
    select_receivers: Selectors,
    select_senders: Selectors,
}

/// The error of a `send` with a time limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// There was no room within the time, or with a bound of zero no receiver.
    Timeout(T),
    /// All receivers are gone.
    Disconnected(T),
}

impl<T> Channel<T> {
    /// A channel with one sender and one receiver, for `bound` values or any number.
    pub(crate) fn new(bound: Option<usize>) -> Channel<T> {
        let state = State {
            queue: VecDeque::new(),
            senders: 1,
            receivers: 1,
            receiving: 0,
            reserved: 0,
            taken: 0,
            select_receivers: Selectors::default(),
            select_senders: Selectors::default(),
        };
        Channel {
            state: Mutex::new(state),
            filled: Condvar::new(),
            drained: Condvar::new(),
            met: Condvar::new(),
            bound,
        }
    }

    pub(crate) fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.send_limited(value, None).map_err(SendTimeoutError::without_reason)
    }

    pub(crate) fn send_limited(
        &self,
        value: T,
        limit: impl Limit,
    ) -> Result<(), SendTimeoutError<T>> {
        let mut state = self.state.lock();
        let is_full = |s: &mut State<T>| s.receivers > 0 && s.taken_places() >= self.places();
        if self.bound.is_some() && !self.drained.wait_while_limited(&mut state, is_full, limit) {
            return Err(SendTimeoutError::Timeout(value));
        }
        if state.receivers == 0 {
            return Err(SendTimeoutError::Disconnected(value));
        }
        match self.bound {
            Some(0) => self.meet(state, value, limit),
            _ => {
                self.put(state, value);
                Ok(())
            }
        }
    }

    pub(crate) fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut state = self.state.lock();
        if state.receivers == 0 {
            return Err(TrySendError::Disconnected(value));
        }
        let Some(receiver) = self.promise(&mut state) else {
            return Err(TrySendError::Full(value));
        };
        state.reserved -= 1;
        self.put(state, value);
        receiver.wake();
        Ok(())
    }

    /// How many values may be in the queue; of a plain `send`.
    fn places(&self) -> usize {
        self.bound.map_or(usize::MAX, |bound| bound.max(1))
    }

    /// Promises a place, if there is one, and wakes the receiver that was claimed for it.
    pub(crate) fn reserve(&self) -> bool {
        let mut state = self.state.lock();
        let promised = self.promise(&mut state);
        drop(state);
        promised.map(Claimed::wake).is_some()
    }

    /// Counts a place as promised if there is one, or if the channel is disconnected; the receiver that was claimed
    /// for it.
    fn promise(&self, state: &mut State<T>) -> Option<Claimed> {
        let has_place = match self.bound {
            _ if state.receivers == 0 => true,
            None => true,
            Some(0) => state.taken_places() < state.receiving,
            Some(bound) => state.taken_places() < bound,
        };
        let receiver = match self.bound {
            _ if has_place => Claimed::NONE,
            Some(0) => state.claim_receiver()?,
            _ => return None,
        };
        state.reserved += 1;
        Some(receiver)
    }

    /// Sends `value` to a place that was promised.
    pub(crate) fn send_reserved(&self, value: T) -> Result<(), SendError<T>> {
        let mut state = self.state.lock();
        state.reserved -= 1;
        if state.receivers == 0 {
            return Err(SendError(value));
        }
        self.put(state, value);
        Ok(())
    }

    /// Withdraws a promise.
    pub(crate) fn unreserve(&self) {
        let mut state = self.state.lock();
        state.reserved -= 1;
        let sender = state.select_senders.notify_one();
        drop(state);
        self.drained.notify_one();
        if self.bound == Some(0) {
            self.filled.notify_all();
        }
        sender.wake();
    }

    fn put(&self, mut state: MutexGuard<'_, State<T>>, value: T) {
        state.queue.push_back(value);
        let receiver = state.select_receivers.notify_one();
        drop(state);
        self.filled.notify_one();
        receiver.wake();
    }

    /// The next value of the queue.
    fn take(&self, mut state: MutexGuard<'_, State<T>>) -> Option<T> {
        let value = state.queue.pop_front()?;
        state.taken += 1;
        let sender = state.select_senders.notify_one();
        drop(state);
        if self.bound.is_some() {
            self.drained.notify_one();
        }
        if self.bound == Some(0) {
            self.met.notify_all();
        }
        sender.wake();
        Some(value)
    }

    pub(crate) fn recv(&self) -> Result<T, RecvError> {
        self.recv_limited(None).map_err(|_| RecvError)
    }

    pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.state.lock();
        self.await_select(&mut state);
        let empty = match state.senders {
            0 => TryRecvError::Disconnected,
            _ => TryRecvError::Empty,
        };
        self.take(state).ok_or(empty)
    }

    pub(crate) fn recv_limited(&self, limit: impl Limit) -> Result<T, RecvTimeoutError> {
        let mut state = self.state.lock();
        self.await_select(&mut state);
        if state.queue.is_empty() {
            state.receiving += 1;
            self.await_value(&mut state, limit);
            state.receiving -= 1;
        }
        let empty = match state.senders {
            0 => RecvTimeoutError::Disconnected,
            _ => RecvTimeoutError::Timeout,
        };
        self.take(state).ok_or(empty)
    }

    /// Waits for a value, within `limit`; beyond it only for one that was promised in a rendezvous.
    fn await_value(&self, state: &mut MutexGuard<'_, State<T>>, limit: impl Limit) {
        let mut in_time = true;
        while state.queue.is_empty() && state.senders > 0 {
            if in_time {
                in_time = self.filled.wait_limited(state, limit);
            } else if self.bound == Some(0) && state.reserved >= state.receiving {
                self.filled.wait(state);
            } else {
                return;
            }
        }
    }

    /// Adds a `select!` that waits to receive; true if there is something for it already, and it was not added.
    pub(crate) fn register_receiver(&self, selection: &Arc<Selection>, arm: usize) -> bool {
        let mut state = self.state.lock();
        let is_ready = !state.queue.is_empty()
            || state.senders == 0
            || (self.bound == Some(0) && state.select_senders.has_other(selection));
        if !is_ready {
            state.select_receivers.add(selection, arm);
        }
        is_ready
    }

    /// Adds a `select!` that waits to send; true if there is a place for it already, and it was not added.
    pub(crate) fn register_sender(&self, selection: &Arc<Selection>, arm: usize) -> bool {
        let mut state = self.state.lock();
        let is_ready = match self.bound {
            _ if state.receivers == 0 => true,
            None => true,
            Some(0) => {
                state.taken_places() < state.receiving
                    || state.select_receivers.has_other(selection)
            }
            Some(bound) => state.taken_places() < bound,
        };
        if !is_ready {
            state.select_senders.add(selection, arm);
            if self.bound == Some(0) {
                // A future that waits to receive is not counted: it looks for senders when it is polled.
                self.filled.notify_all();
            }
        }
        is_ready
    }

    pub(crate) fn unregister_receiver(&self, selection: &Arc<Selection>) {
        self.state.lock().select_receivers.remove(selection);
    }

    pub(crate) fn unregister_sender(&self, selection: &Arc<Selection>) {
        self.state.lock().select_senders.remove(selection);
    }

    pub(crate) fn bound(&self) -> Option<usize> {
        self.bound
    }

    /// How many values can be received.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().queue.len()
    }

    pub(crate) fn has_receivers(&self) -> bool {
        self.state.lock().receivers > 0
    }

    pub(crate) fn add_sender(&self) {
        self.state.lock().senders += 1;
    }

    pub(crate) fn add_receiver(&self) {
        self.state.lock().receivers += 1;
    }

    pub(crate) fn drop_sender(&self) {
        let mut state = self.state.lock();
        state.senders -= 1;
        if state.senders == 0 {
            let receivers = std::mem::take(&mut state.select_receivers);
            drop(state);
            self.filled.notify_all();
            receivers.notify_all();
        }
    }

    /// Drops what was not received, with the last receiver. The value of a rendezvous goes back to its sender, which
    /// waits.
    pub(crate) fn drop_receiver(&self) {
        let mut state = self.state.lock();
        state.receivers -= 1;
        if state.receivers > 0 {
            return;
        }
        let unread = match self.bound {
            Some(0) => VecDeque::new(),
            _ => std::mem::take(&mut state.queue),
        };
        let senders = std::mem::take(&mut state.select_senders);
        drop(state);
        self.drained.notify_all();
        self.met.notify_all();
        senders.notify_all();
        // Last: the destructors are the user's.
        drop(unread);
    }
}

impl<T> State<T> {
    /// Values in the queue and promised places.
    fn taken_places(&self) -> usize {
        self.queue.len() + self.reserved
    }
}

impl<T> SendTimeoutError<T> {
    fn without_reason(self) -> SendError<T> {
        match self {
            SendTimeoutError::Timeout(value) | SendTimeoutError::Disconnected(value) => {
                SendError(value)
            }
        }
    }
}

impl<T> std::fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Timeout(_) => "Timeout(..)",
            SendTimeoutError::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> std::fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Timeout(_) => "timed out waiting on a send operation",
            SendTimeoutError::Disconnected(_) => "sending on a channel without receivers",
        })
    }
}

impl<T> std::error::Error for SendTimeoutError<T> {}

impl<T> From<SendError<T>> for SendTimeoutError<T> {
    fn from(SendError(value): SendError<T>) -> SendTimeoutError<T> {
        SendTimeoutError::Disconnected(value)
    }
}
