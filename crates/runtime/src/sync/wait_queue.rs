//! Those who wait for one thing, in order of arrival.

use super::who::{self, Who};
use crate::preempt::NoPreempt;
use heddle_core::Ns;
use heddle_sys::clock;
use heddle_sys::sync::SpinLock;
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A queue of waiters, each a node on the stack of whoever waits.
///
/// The lock orders everything: a waiter checks its condition and joins under it; a waker takes a node out under it, with
/// the right to wake, and touches the node no more once it has set `woken`.
#[derive(Default)]
pub(crate) struct WaitQueue {
    lock: SpinLock,
    len: AtomicU32,
    ends: UnsafeCell<Ends>,
}

struct Ends {
    head: *const Node,
    tail: *const Node,
}

impl Default for Ends {
    fn default() -> Self {
        Ends { head: ptr::null(), tail: ptr::null() }
    }
}

struct Node {
    who: Cell<Option<Who>>,
    next: Cell<*const Node>,
    prev: Cell<*const Node>,
    woken: AtomicBool,
}

// SAFETY: the ends and the nodes' links are used under the lock only.
unsafe impl Sync for WaitQueue {}
// SAFETY: as above.
unsafe impl Send for WaitQueue {}

impl WaitQueue {
    /// An empty queue.
    pub(crate) const fn new() -> WaitQueue {
        WaitQueue {
            lock: SpinLock::new(),
            len: AtomicU32::new(0),
            ends: UnsafeCell::new(Ends { head: ptr::null(), tail: ptr::null() }),
        }
    }

    /// Whether anybody waits; may be out of date.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.len.load(Ordering::Relaxed) != 0
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
        let node = Node {
            who: Cell::new(Some(Who::current())),
            next: Cell::new(ptr::null()),
            prev: Cell::new(ptr::null()),
            woken: AtomicBool::new(false),
        };
        {
            let _guard = NoPreempt::new();
            self.lock.lock();
            let wait = condition();
            if wait {
                self.push(&node);
            }
            self.lock.unlock();
            if !wait {
                return true;
            }
        }
        joined();
        loop {
            if node.woken.load(Ordering::Acquire) {
                return true;
            }
            match deadline {
                None => who::park(),
                Some(at) if clock::now() < at => who::park_until(at),
                Some(_) => return !self.withdraw(&node),
            }
        }
    }

    /// Takes `node` out if it still waits; whether it did.
    fn withdraw(&self, node: &Node) -> bool {
        let _guard = NoPreempt::new();
        self.lock.lock();
        let waits = !node.woken.load(Ordering::Relaxed);
        if waits {
            self.unlink(node);
        }
        self.lock.unlock();
        waits
    }

    /// Wakes whoever waits longest; whether there was anybody.
    #[inline]
    pub(crate) fn wake_one(&self) -> bool {
        let _guard = NoPreempt::new();
        self.lock.lock();
        let who = self.pop();
        self.lock.unlock();
        who.map(Who::wake).is_some()
    }

    /// Wakes everybody who waits now; who comes meanwhile may wait on.
    pub(crate) fn wake_all(&self) {
        let _guard = NoPreempt::new();
        let mut left = None;
        loop {
            self.lock.lock();
            // Counted under the lock: a waiter that saw the old state has joined by now.
            let n: &mut u32 = left.get_or_insert(self.len.load(Ordering::Relaxed));
            let who = if *n > 0 { self.pop() } else { None };
            *n = n.saturating_sub(1);
            self.lock.unlock();
            match who {
                Some(who) => who.wake(),
                None => break,
            }
        }
    }

    // What follows runs under the lock.

    fn push(&self, node: &Node) {
        // SAFETY: the lock is held; nodes in the queue are alive, because their owners leave only after they were taken out.
        unsafe {
            let ends = &mut *self.ends.get();
            node.prev.set(ends.tail);
            match ends.tail.as_ref() {
                Some(tail) => tail.next.set(node),
                None => ends.head = node,
            }
            ends.tail = node;
        }
        self.len.store(self.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn unlink(&self, node: &Node) {
        // SAFETY: as in `push`.
        unsafe {
            let ends = &mut *self.ends.get();
            match node.prev.get().as_ref() {
                Some(prev) => prev.next.set(node.next.get()),
                None => ends.head = node.next.get(),
            }
            match node.next.get().as_ref() {
                Some(next) => next.prev.set(node.prev.get()),
                None => ends.tail = node.prev.get(),
            }
        }
        self.len.store(self.len.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    fn pop(&self) -> Option<Who> {
        // SAFETY: as in `push`. After `woken` is set the node may be gone.
        unsafe {
            let node = (*self.ends.get()).head.as_ref()?;
            self.unlink(node);
            let who = node.who.take();
            node.woken.store(true, Ordering::Release);
            who
        }
    }
}
