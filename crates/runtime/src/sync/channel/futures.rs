//! Futures that send and receive; the rules are in the [module above](super).
//!
//! A future that waits to receive in a rendezvous is not counted in `receiving`: it could not be dropped if another
//! party relied on it. It takes what a plain `send` offers, and looks for senders in a `select!` whenever it is polled;
//! `try_send` does not see it.

use super::{Channel, SendTimeoutError, State};
use crate::sync::{MutexGuard, QueuedWaker};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::mpsc::{RecvError, SendError};
use std::task::{Context, Poll, ready};

impl<T> Channel<T> {
    /// Receives the next value.
    pub(crate) async fn recv_async<'a>(&'a self) -> Result<T, RecvError> {
        let mut wait = pin!(QueuedWaker::new(self.filled.waiters()));
        let receive = |mut state: MutexGuard<'a, State<T>>| {
            self.await_select(&mut state);
            match state.queue.is_empty() && state.senders > 0 {
                true => Err(state),
                false => Ok(self.take(state).ok_or(RecvError)),
            }
        };
        poll_fn(|cx| self.poll_until(wait.as_mut(), cx, receive)).await
    }

    /// Sends `value`. Dropped before that, the future drops it.
    pub(crate) async fn send_async<'a>(&'a self, value: T) -> Result<(), SendError<T>> {
        let mut value = Some(value);
        let mut wait = pin!(QueuedWaker::new(self.drained.waiters()));
        let mut send = |mut state: MutexGuard<'a, State<T>>| {
            if state.receivers > 0 && state.taken_places() >= self.places() {
                return Err(state);
            }
            let value = value.take().expect("a future that is done is not polled");
            if state.receivers == 0 {
                return Ok(Err(SendError(value)));
            }
            if self.bound == Some(0) {
                return Ok(Ok(Some(self.offer(&mut state, value))));
            }
            self.put(state, value);
            Ok(Ok(None))
        };
        match poll_fn(|cx| self.poll_until(wait.as_mut(), cx, &mut send)).await? {
            Some(before) => self.met_async(before).await,
            None => Ok(()),
        }
    }

    /// Waits until the value that was offered is received.
    async fn met_async<'a>(&'a self, before: u64) -> Result<(), SendError<T>> {
        let mut offer = Offer { channel: self, before: Some(before) };
        let mut wait = pin!(QueuedWaker::new(self.met.waiters()));
        let is_met = |state: MutexGuard<'a, State<T>>| {
            if state.receivers > 0 && state.taken == before {
                return Err(state);
            }
            Ok(state)
        };
        poll_fn(|cx| {
            let state = ready!(self.poll_until(wait.as_mut(), cx, is_met));
            offer.before = None;
            Poll::Ready(self.end_offer(state, before).map_err(SendTimeoutError::without_reason))
        })
        .await
    }

    /// Completes with what `attempt` returns, which gives the state back if it must wait: in the queue of `wait`, which
    /// it joins before it releases the state.
    fn poll_until<'a, R>(
        &'a self,
        mut wait: Pin<&mut QueuedWaker<'_>>,
        cx: &Context<'_>,
        mut attempt: impl FnMut(MutexGuard<'a, State<T>>) -> Result<R, MutexGuard<'a, State<T>>>,
    ) -> Poll<R> {
        ready!(wait.as_mut().poll_woken(cx));
        loop {
            let state = match attempt(self.state.lock()) {
                Ok(result) => return Poll::Ready(result),
                Err(state) => state,
            };
            if wait.is_armed() {
                wait.as_mut().join();
                return Poll::Pending;
            }
            // Not under the lock: cloning a waker is the executor's code.
            drop(state);
            wait.as_mut().arm(cx);
        }
    }
}

/// A value in the queue of a rendezvous, taken back if its future is dropped before it was received.
struct Offer<'a, T> {
    channel: &'a Channel<T>,
    before: Option<u64>,
}

impl<T> Drop for Offer<'_, T> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            drop(self.channel.end_offer(self.channel.state.lock(), before));
        }
    }
}
