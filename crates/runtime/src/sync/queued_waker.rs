//! How a future waits in a queue.
//!
//! ```text
//! idle --arm--> armed --join--> waiting --woken, seen by a poll--> idle
//!                                  |  ^
//!                                  +--+  polled with another waker: replaced
//! ```
//!
//! The node lies in the future, which is pinned from its first poll on. A future that is dropped while it waits
//! withdraws; if it was woken and no poll has seen that, it wakes the next waiter instead, so no wake is lost. (A
//! future that is leaked leaves its node where it is, in memory that is never freed.)

use super::WaitQueue;
use super::wait_queue::Party;
use crate::preempt::NoPreempt;
use heddle_sync::WaitNode;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

/// See the module.
pub(crate) struct QueuedWaker<'a> {
    queue: &'a WaitQueue,
    /// With a waker in it, to join or joined.
    node: Option<WaitNode<Party>>,
    is_waiting: bool,
    _pinned: PhantomPinned,
}

// SAFETY: what other threads do with a node that waits is under the queue's lock; otherwise only its owner uses it.
unsafe impl Send for QueuedWaker<'_> {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for QueuedWaker<'_> {}

impl<'a> QueuedWaker<'a> {
    /// Does not wait yet.
    pub(crate) fn new(queue: &'a WaitQueue) -> QueuedWaker<'a> {
        QueuedWaker { queue, node: None, is_waiting: false, _pinned: PhantomPinned }
    }

    /// The fields. The node is not moved while it waits.
    fn project(self: Pin<&mut Self>) -> &mut Self {
        // SAFETY: the methods below replace the node only if it does not wait.
        unsafe { self.get_unchecked_mut() }
    }

    /// Polls for the first result of `attempt`; see [`WaitQueue::until`].
    pub(crate) fn poll_until<R>(
        mut self: Pin<&mut Self>,
        cx: &Context<'_>,
        mut attempt: impl FnMut() -> Option<R>,
        mut condition: impl FnMut() -> bool,
    ) -> Poll<R> {
        loop {
            ready!(self.as_mut().poll_woken(cx));
            if let Some(result) = attempt() {
                return Poll::Ready(result);
            }
            if self.as_mut().join_if(cx, &mut condition) {
                return Poll::Pending;
            }
        }
    }

    /// Pending while it waits; then `cx` is woken. When it was woken it is idle again, and the caller acts on the wake
    /// in this poll. Returns whether the wake was for one waiter.
    pub(crate) fn poll_woken(self: Pin<&mut Self>, cx: &Context<'_>) -> Poll<bool> {
        let this = self.project();
        let Some(node) = this.node.as_ref().filter(|_| this.is_waiting) else {
            return Poll::Ready(false);
        };
        if !node.is_woken() {
            this.queue.update(node, cx.waker());
        }
        // Also if it was woken during the update, which left the waker uncalled then.
        if !node.is_woken() {
            return Poll::Pending;
        }
        let for_one = node.is_woken_by_take();
        this.is_waiting = false;
        this.node = None;
        Poll::Ready(for_one)
    }

    /// Takes the waker of `cx`, which is cloned, so that [`QueuedWaker::join`] can be called where that must not be
    /// done.
    pub(crate) fn arm(self: Pin<&mut Self>, cx: &Context<'_>) {
        let this = self.project();
        if this.node.is_none() {
            this.node = Some(WaitNode::new(Party::Future(cx.waker().clone())));
        }
    }

    /// Whether it can join.
    pub(crate) fn is_armed(&self) -> bool {
        self.node.is_some() && !self.is_waiting
    }

    /// Joins the queue if it is armed and `condition` holds when that is locked.
    fn join_armed(self: Pin<&mut Self>, condition: impl FnOnce() -> bool) -> bool {
        let this = self.project();
        let Some(node) = this.node.as_ref().filter(|_| !this.is_waiting) else { return false };
        let _guard = NoPreempt::new();
        // SAFETY: the node stays until `poll_woken` has seen that it was woken, or the drop has withdrawn it: it is
        // pinned, and replaced only if it does not wait.
        this.is_waiting = unsafe { this.queue.list().join_if(node, condition) };
        this.is_waiting
    }

    /// Joins the queue. It is armed.
    pub(crate) fn join(self: Pin<&mut Self>) {
        let joins = self.join_armed(|| true);
        debug_assert!(joins);
    }

    /// Joins the queue if `condition` holds when that is locked. It does not wait.
    pub(crate) fn join_if(
        mut self: Pin<&mut Self>,
        cx: &Context<'_>,
        condition: impl FnOnce() -> bool,
    ) -> bool {
        self.as_mut().arm(cx);
        self.join_armed(condition)
    }
}

impl WaitQueue {
    /// Makes `node`, which has joined, wake `waker`.
    fn update(&self, node: &WaitNode<Party>, waker: &Waker) {
        let same = |party: &Party| matches!(party, Party::Future(own) if own.will_wake(waker));
        let is_current = {
            let _guard = NoPreempt::new();
            self.list().wakes(node, same)
        };
        if !is_current {
            let new = Party::Future(waker.clone());
            let old = {
                let _guard = NoPreempt::new();
                self.list().replace(node, new)
            };
            drop(old);
        }
    }
}

impl Drop for QueuedWaker<'_> {
    fn drop(&mut self) {
        let Some(node) = self.node.as_ref().filter(|_| self.is_waiting) else { return };
        let withdrawn = {
            let _guard = NoPreempt::new();
            self.queue.list().withdraw(node)
        };
        if !withdrawn && node.is_woken_by_take() {
            self.queue.wake_one();
        }
    }
}

#[cfg(test)]
mod tests;
