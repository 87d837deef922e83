//! The tasks, ordinary threads and futures that wait for one thing, in order of arrival.
//!
//! The protocol is that of [`heddle_sync::WaitList`], where it is model-checked; this adds parking, and
//! [`QueuedWaker`] what a future does in between its polls.

use super::queued_waker::QueuedWaker;
use super::waiter::{Limit, Waiter};
use crate::carrier::call_waker;
use crate::preempt::NoPreempt;
use heddle_sync::{WaitList, WaitNode};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Waker;

/// A queue of waiters. Each is a node on the waiter's own stack, or in its future.
#[derive(Default)]
pub(crate) struct WaitQueue(WaitList<Party>);

/// Whom a node of a queue wakes.
pub(super) enum Party {
    /// A task or a thread, which is parked.
    Parked(Waiter),
    /// A future, which is polled again.
    Future(Waker),
}

impl Party {
    /// Wakes it. Preemption is off, also for the waker of a foreign executor.
    #[inline]
    fn wake(self) {
        match self {
            Party::Parked(waiter) => waiter.wake(),
            Party::Future(waker) => waker.wake(),
        }
    }
}

impl Party {
    /// Wakes it, in the middle of an interrupted task or between two.
    fn report(self) {
        match self {
            Party::Parked(waiter) => waiter.wake(),
            Party::Future(waker) => call_waker(waker),
        }
    }
}

impl WaitQueue {
    /// An empty queue.
    pub(crate) const fn new() -> WaitQueue {
        WaitQueue(WaitList::new())
    }

    /// Whether anything waits; may be out of date.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.0.has_waiters()
    }

    /// Waits until woken if `condition` holds when the queue is locked; returns at once if not. False if the limit
    /// ended the wait. `condition` runs under a spin lock: loads and stores only.
    pub(crate) fn wait_while(&self, condition: impl FnOnce() -> bool, limit: impl Limit) -> bool {
        self.wait_then(condition, || {}, limit)
    }

    /// Like [`WaitQueue::wait_while`], and calls `joined` after joining the queue and before parking.
    #[inline(always)]
    pub(crate) fn wait_then(
        &self,
        condition: impl FnOnce() -> bool,
        joined: impl FnOnce(),
        limit: impl Limit,
    ) -> bool {
        let node = WaitNode::new(Party::Parked(Waiter::current()));
        let joins = {
            let _guard = NoPreempt::new();
            // SAFETY: the node stays here until it was woken or withdrawn: the two ways out of the loop below.
            unsafe { self.0.join_if(&node, condition) }
        };
        if !joins {
            return true;
        }
        joined();
        loop {
            if node.is_woken() {
                return true;
            }
            if !limit.park() {
                let _guard = NoPreempt::new();
                return !self.0.withdraw(&node);
            }
        }
    }

    /// Like [`WaitQueue::wake_one`], for callers that handle a socket: between two tasks, or in the middle of one that
    /// was interrupted.
    #[inline]
    pub(crate) fn report_to_one(&self) {
        let _guard = NoPreempt::new();
        self.0.take().into_iter().for_each(Party::report);
    }

    /// Like [`WaitQueue::wake_all`], for such callers.
    pub(crate) fn report_to_all(&self) {
        let _guard = NoPreempt::new();
        self.0.take_all(Party::report);
    }

    /// Wakes the longest waiter; whether there was one.
    #[inline]
    pub(crate) fn wake_one(&self) -> bool {
        let _guard = NoPreempt::new();
        self.0.take().map(Party::wake).is_some()
    }

    /// Wakes all current waiters. Those that join meanwhile may wait on.
    pub(crate) fn wake_all(&self) {
        let _guard = NoPreempt::new();
        self.0.take_all(Party::wake);
    }

    /// Completes with the first result of `attempt`, which is made at once and after each wake. In between the future
    /// waits in the queue if `condition` holds when it is locked; `condition` runs under a spin lock. A future that is
    /// dropped leaves the queue, and passes on a wake that it has not used.
    pub(crate) async fn until<R>(
        &self,
        mut attempt: impl FnMut() -> Option<R>,
        mut condition: impl FnMut() -> bool,
    ) -> R {
        let mut wait = pin!(QueuedWaker::new(self));
        poll_fn(|cx| wait.as_mut().poll_until(cx, &mut attempt, &mut condition)).await
    }

    /// Runs `look`, which only loads and stores, under the lock; see [`WaitList::look`].
    pub(crate) fn look<R>(&self, look: impl FnOnce() -> R) -> R {
        let _guard = NoPreempt::new();
        self.0.look(look)
    }

    /// The list itself. Preemption is off while it is used.
    pub(super) fn list(&self) -> &WaitList<Party> {
        &self.0
    }
}
