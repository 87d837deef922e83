//! The tasks and ordinary threads that wait for one thing, in order of arrival.
//!
//! The protocol is that of [`heddle_sync::WaitList`], where it is model-checked; this adds parking.

use super::waiter::{Limit, Waiter};
use crate::preempt::NoPreempt;
use heddle_sync::{WaitList, WaitNode};

/// A queue of waiters. Each is a node on the waiter's own stack.
#[derive(Default)]
pub(crate) struct WaitQueue(WaitList<Waiter>);

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
        let node = WaitNode::new(Waiter::current());
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

    /// Wakes the longest waiter; whether there was one.
    #[inline]
    pub(crate) fn wake_one(&self) -> bool {
        let _guard = NoPreempt::new();
        self.0.take().map(Waiter::wake).is_some()
    }

    /// Wakes all current waiters. Those that join meanwhile may wait on.
    pub(crate) fn wake_all(&self) {
        let _guard = NoPreempt::new();
        self.0.take_all(Waiter::wake);
    }
}
