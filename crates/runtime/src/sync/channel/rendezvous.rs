//! What only a channel with a bound of zero does; the rules are in the [module above](super).

use super::{Channel, SendTimeoutError, State};
use crate::sync::MutexGuard;
use crate::sync::select::Claimed;
use crate::sync::waiter::Limit;

impl<T> State<T> {
    /// Claims a receiver in a `select!` and counts it as one that takes the next value for certain.
    pub(super) fn claim_receiver(&mut self) -> Option<Claimed> {
        let receiver = self.select_receivers.commit_one();
        let claimed = receiver.is_some();
        self.receiving += usize::from(claimed);
        claimed.then_some(receiver)
    }

    /// Claims a sender in a `select!` and promises it a place.
    fn claim_sender(&mut self) -> Option<Claimed> {
        let sender = self.select_senders.commit_one();
        let claimed = sender.is_some();
        self.reserved += usize::from(claimed);
        claimed.then_some(sender)
    }
}

impl<T> Channel<T> {
    /// Puts `value` into the empty queue and waits until it was received, within `limit`.
    pub(super) fn meet(
        &self,
        mut state: MutexGuard<'_, State<T>>,
        value: T,
        limit: impl Limit,
    ) -> Result<(), SendTimeoutError<T>> {
        let before = self.offer(&mut state, value);
        let is_there = |s: &mut State<T>| s.receivers > 0 && s.taken == before;
        self.met.wait_while_limited(&mut state, is_there, limit);
        self.end_offer(state, before)
    }

    /// Puts `value` into the empty queue. Returns how many values had been received before.
    pub(super) fn offer(&self, state: &mut MutexGuard<'_, State<T>>, value: T) -> u64 {
        state.queue.push_back(value);
        let receiver = state.select_receivers.notify_one();
        self.filled.notify_one();
        receiver.wake();
        state.taken
    }

    /// Takes the value that was offered back, if it was not received.
    pub(super) fn end_offer(
        &self,
        mut state: MutexGuard<'_, State<T>>,
        before: u64,
    ) -> Result<(), SendTimeoutError<T>> {
        if state.taken != before {
            return Ok(());
        }
        let value = state.queue.pop_front().expect("a value that was not received is still there");
        if state.receivers == 0 {
            return Err(SendTimeoutError::Disconnected(value));
        }
        // Its place is free again.
        let sender = state.select_senders.notify_one();
        drop(state);
        self.drained.notify_one();
        sender.wake();
        Err(SendTimeoutError::Timeout(value))
    }

    /// If a sender waits in a `select!` for a receiver of this rendezvous, claims it and waits for its value, which
    /// it may still fail to send.
    pub(super) fn await_select(&self, state: &mut MutexGuard<'_, State<T>>) {
        if self.bound != Some(0) || !state.queue.is_empty() {
            return;
        }
        if let Some(sender) = state.claim_sender() {
            state.receiving += 1;
            sender.wake();
            self.await_promised(state);
        }
    }

    /// Waits, as a receiver that is counted, for a promised value; there may be none in the end.
    fn await_promised(&self, state: &mut MutexGuard<'_, State<T>>) {
        while state.queue.is_empty() && state.reserved > 0 {
            self.filled.wait(state);
        }
        state.receiving -= 1;
    }

    /// Receives the value for which a sender claimed the caller's `select!`, if it comes.
    pub(crate) fn recv_committed(&self) -> Option<T> {
        let mut state = self.state.lock();
        self.await_promised(&mut state);
        self.take(state)
    }
}
