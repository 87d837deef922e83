//! Those who wait for one thing, in order of arrival: tasks and ordinary threads.
//!
//! The protocol is [`heddle_sys::sync::WaitList`]'s, where it is model-checked; here is how one sleeps.

use super::who::{self, Who};
use crate::preempt::NoPreempt;
use heddle_core::Ns;
use heddle_sys::clock;
use heddle_sys::sync::{WaitList, WaitNode};

/// A queue of waiters, each a node on the stack of whoever waits.
#[derive(Default)]
pub(crate) struct WaitQueue(WaitList<Who>);

impl WaitQueue {
    /// An empty queue.
    pub(crate) const fn new() -> WaitQueue {
        WaitQueue(WaitList::new())
    }

    /// Whether anybody waits; may be out of date.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.0.has_waiters()
    }

    /// Waits until woken, if `condition` holds when the queue is locked; at once if not. False if the deadline passed
    /// first. `condition` runs under a spin lock: loads and stores only.
    pub(crate) fn wait_while(
        &self,
        condition: impl FnOnce() -> bool,
        deadline: Option<Ns>,
    ) -> bool {
        self.wait_then(condition, || {}, deadline)
    }

    /// Like [`WaitQueue::wait_while`], and calls `joined` once the caller stands in the queue, before it sleeps.
    #[inline(always)]
    pub(crate) fn wait_then(
        &self,
        condition: impl FnOnce() -> bool,
        joined: impl FnOnce(),
        deadline: Option<Ns>,
    ) -> bool {
        let node = WaitNode::new(Who::current());
        let joins = {
            let _guard = NoPreempt::new();
            // SAFETY: the node stays here until it was woken or withdrawn: the ways out of the loop below.
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
            match deadline {
                None => who::park(),
                Some(at) if clock::now() < at => who::park_until(at),
                Some(_) => {
                    let _guard = NoPreempt::new();
                    return !self.0.withdraw(&node);
                }
            }
        }
    }

    /// Wakes whoever waits longest; whether there was anybody.
    #[inline]
    pub(crate) fn wake_one(&self) -> bool {
        let _guard = NoPreempt::new();
        self.0.take().map(Who::wake).is_some()
    }

    /// Wakes everybody who waits now; who comes meanwhile may wait on.
    pub(crate) fn wake_all(&self) {
        let _guard = NoPreempt::new();
        self.0.take_all(Who::wake);
    }
}
