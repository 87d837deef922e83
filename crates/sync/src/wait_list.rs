//! The waiters for one object, in order of arrival, each with a node on its own stack.
//!
//! The lock orders everything. A waiter checks its condition and joins under it, so a waker that changes the condition
//! first and then looks at the list under the lock is either seen by the check or finds the waiter. A waker takes a
//! node out under the lock, with the right to wake its owner, and does not touch the node after it has set `woken`; a
//! waiter whose time is up withdraws under the lock, unless it was already taken out, and then it *was* woken. So every
//! wake goes to exactly one waiter, and to one that still waits.
//!
//! A waiter that withdraws because it is being dropped finds out whether it was woken, too, and by which of the two:
//! a wake that was meant for one waiter is passed on to the next, one that was meant for all needs no heir. Whom a node
//! wakes can be replaced while it waits. Neither is called, cloned nor dropped under the lock.

use super::atomic::{AtomicU32, Ordering};
use super::lock::Lock;
use core::cell::{Cell, UnsafeCell};
use core::ptr;

/// See the module docs. `W` says whom to wake. Callers must not be preempted by the runtime while they are in here.
pub struct WaitList<W> {
    lock: Lock,
    len: AtomicU32,
    ends: UnsafeCell<Ends<W>>,
}

struct Ends<W> {
    head: *const WaitNode<W>,
    tail: *const WaitNode<W>,
}

/// The values of [`WaitNode`]'s word.
const WAITS: u32 = 0;
const WOKEN: u32 = 1;
const WOKEN_WITH_ALL: u32 = 2;

/// A waiter.
pub struct WaitNode<W> {
    who: Cell<Option<W>>,
    next: Cell<*const WaitNode<W>>,
    prev: Cell<*const WaitNode<W>>,
    woken: AtomicU32,
}

// SAFETY: the ends and the nodes' links are used under the lock only.
unsafe impl<W: Send> Sync for WaitList<W> {}
// SAFETY: as above.
unsafe impl<W: Send> Send for WaitList<W> {}

impl<W> Default for WaitList<W> {
    fn default() -> Self {
        WaitList::new()
    }
}

impl<W> WaitNode<W> {
    /// Returns a node for `who`, which does not wait yet.
    #[inline]
    pub fn new(who: W) -> WaitNode<W> {
        let (next, prev) = (Cell::new(ptr::null()), Cell::new(ptr::null()));
        WaitNode { who: Cell::new(Some(who)), next, prev, woken: AtomicU32::new(WAITS) }
    }

    /// Returns whether it was taken out to be woken.
    #[inline]
    pub fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire) != WAITS
    }

    /// Returns whether it was taken out by [`WaitList::take`]: the wake was for one waiter, not for all.
    pub fn is_woken_by_take(&self) -> bool {
        self.woken.load(Ordering::Acquire) == WOKEN
    }
}

impl<W> WaitList<W> {
    /// Returns an empty list.
    #[cfg(not(loom))]
    pub const fn new() -> WaitList<W> {
        let ends = UnsafeCell::new(Ends { head: ptr::null(), tail: ptr::null() });
        WaitList { lock: Lock::new(), len: AtomicU32::new(0), ends }
    }

    /// Returns an empty list.
    #[cfg(loom)]
    pub fn new() -> WaitList<W> {
        let ends = UnsafeCell::new(Ends { head: ptr::null(), tail: ptr::null() });
        WaitList { lock: Lock::default(), len: AtomicU32::new(0), ends }
    }

    /// Returns whether any task is waiting; may be stale.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        self.len.load(Ordering::Relaxed) != 0
    }

    /// Joins the list if `condition` holds under its lock. Returns whether it did. `condition` only loads and stores.
    ///
    /// # Safety
    /// A node that has joined stays where it is until [`WaitNode::is_woken`] or [`WaitList::withdraw`] returned true.
    #[inline]
    pub unsafe fn join_if(&self, node: &WaitNode<W>, condition: impl FnOnce() -> bool) -> bool {
        self.lock.with(|| {
            let wait = condition();
            if wait {
                self.push(node);
            }
            wait
        })
    }

    /// Takes `node`, which has joined, out if it still waits. Returns whether it did; if not, it was woken.
    pub fn withdraw(&self, node: &WaitNode<W>) -> bool {
        self.lock.with(|| {
            let waits = self.waits(node);
            if waits {
                self.unlink(node);
            }
            waits
        })
    }

    /// Returns whether `node`, which has joined, still waits and wakes one that passes `test`, which only compares.
    pub fn wakes(&self, node: &WaitNode<W>, test: impl FnOnce(&W) -> bool) -> bool {
        self.lock.with(|| {
            let who = if self.waits(node) { node.who.take() } else { None };
            let passes = who.as_ref().is_some_and(test);
            if who.is_some() {
                node.who.set(who);
            }
            passes
        })
    }

    /// Makes `node`, which has joined, wake `who` instead. Returns the one that it does not wake: the one before, or
    /// `who` if the node was woken already.
    pub fn replace(&self, node: &WaitNode<W>, who: W) -> W {
        self.lock.with(|| match node.who.take() {
            Some(before) => {
                node.who.set(Some(who));
                before
            }
            None => who,
        })
    }

    /// Runs `look`, which only loads and stores, under the lock. A caller that has published that it waits, other than
    /// by joining, is then either seen by the next [`WaitList::take`] or sees what the waker changed before it.
    pub fn look<R>(&self, look: impl FnOnce() -> R) -> R {
        self.lock.with(look)
    }

    /// Removes the waiter that has waited longest; the caller wakes it.
    #[inline]
    pub fn take(&self) -> Option<W> {
        self.lock.with(|| self.pop(WOKEN))
    }

    /// Takes out all current waiters and calls `wake` on each without the lock. Waiters that arrive meanwhile may
    /// remain.
    pub fn take_all(&self, mut wake: impl FnMut(W)) {
        // Counted under the lock: a waiter that saw the old state has joined by now.
        let mut left = self.lock.with(|| self.len.load(Ordering::Relaxed));
        while left > 0 {
            let Some(who) = self.lock.with(|| self.pop(WOKEN_WITH_ALL)) else { break };
            wake(who);
            left -= 1;
        }
    }

    // Everything below runs under the lock.

    fn waits(&self, node: &WaitNode<W>) -> bool {
        node.woken.load(Ordering::Relaxed) == WAITS
    }

    fn push(&self, node: &WaitNode<W>) {
        // SAFETY: the lock is held; nodes in the list are where they joined (`join_if`).
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

    fn unlink(&self, node: &WaitNode<W>) {
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

    fn pop(&self, how: u32) -> Option<W> {
        // SAFETY: as in `push`. After `woken` is set the node may be gone.
        unsafe {
            let node = (*self.ends.get()).head.as_ref()?;
            self.unlink(node);
            let who = node.who.take();
            node.woken.store(how, Ordering::Release);
            who
        }
    }
}
