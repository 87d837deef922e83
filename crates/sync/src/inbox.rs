//! Where other threads leave tasks for a run queue without waiting for its lock.
//!
//! A stack of nodes: push is one compare-and-swap, and the owner takes all at once. That rules out the ABA problem: no
//! thread pops a single node.

use super::atomic::{AtomicPtr, Ordering};
use core::ptr;

/// The link embedded in each pushed object.
#[derive(Debug)]
pub struct InboxNode(AtomicPtr<InboxNode>);

impl Default for InboxNode {
    fn default() -> Self {
        InboxNode(AtomicPtr::new(ptr::null_mut()))
    }
}

/// An inbox: many threads push, one at a time takes everything, oldest first.
#[derive(Debug)]
pub struct Inbox(AtomicPtr<InboxNode>);

impl Default for Inbox {
    fn default() -> Self {
        Inbox(AtomicPtr::new(ptr::null_mut()))
    }
}

impl Inbox {
    /// Returns whether there is nothing to take; may be stale at once. A thread that sees it empty after a
    /// [`take`](Inbox::take) also sees what the taker wrote before that.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire).is_null()
    }

    /// Leaves `node`. Returns true if the inbox was empty.
    ///
    /// # Safety
    /// The node stays valid and is in no inbox until [`Inbox::take`] has yielded it.
    pub unsafe fn push(&self, node: *mut InboxNode) -> bool {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: valid by the caller's promise, and ours until the exchange below publishes it.
            unsafe { (*node).0.store(head, Ordering::Relaxed) };
            match self.0.compare_exchange_weak(head, node, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return head.is_null(),
                Err(now) => head = now,
            }
        }
    }

    /// Takes every node and calls `each` for it, in the order of the pushes. A node may be pushed again from within
    /// `each`.
    pub fn take(&self, mut each: impl FnMut(*mut InboxNode)) {
        let mut newest = self.0.swap(ptr::null_mut(), Ordering::AcqRel);
        let mut oldest = ptr::null_mut();
        while !newest.is_null() {
            // SAFETY: pushed nodes stay valid until yielded, and this thread owns the chain that it swapped out.
            unsafe {
                let next = (*newest).0.load(Ordering::Relaxed);
                (*newest).0.store(oldest, Ordering::Relaxed);
                oldest = newest;
                newest = next;
            }
        }
        while !oldest.is_null() {
            // SAFETY: as above; the link is read before `each` may reuse the node.
            let next = unsafe { (*oldest).0.load(Ordering::Relaxed) };
            each(oldest);
            oldest = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes<const N: usize>() -> [*mut InboxNode; N] {
        [(); N].map(|()| Box::into_raw(Box::default()))
    }

    fn free(nodes: &[*mut InboxNode]) {
        for &node in nodes {
            // SAFETY: made by `nodes` above and in no inbox any more.
            drop(unsafe { Box::from_raw(node) });
        }
    }

    #[cfg(not(loom))]
    #[test]
    fn yields_in_the_order_of_pushing() {
        let (inbox, nodes) = (Inbox::default(), nodes::<3>());
        // SAFETY: the nodes live until `free`, and each is pushed once.
        let first: Vec<bool> = nodes.iter().map(|&n| unsafe { inbox.push(n) }).collect();
        assert_eq!(first, [true, false, false]);
        let mut seen = vec![];
        inbox.take(|n| seen.push(n));
        assert_eq!(seen, nodes);
        assert!(inbox.is_empty());
        free(&nodes);
    }

    #[cfg(loom)]
    #[test]
    fn nothing_is_lost_between_two_pushers_and_a_taker() {
        loom::model(|| {
            let inbox = loom::sync::Arc::new(Inbox::default());
            let all = nodes::<3>();
            let [a, b, c] = all.map(|n| n as usize);
            let other = inbox.clone();
            let thread = loom::thread::spawn(move || {
                // SAFETY: the nodes live until `free`, and each is pushed once.
                unsafe { other.push(a as *mut InboxNode) };
                unsafe { other.push(b as *mut InboxNode) };
            });
            // SAFETY: as above.
            unsafe { inbox.push(c as *mut InboxNode) };
            let mut seen = vec![];
            inbox.take(|n| seen.push(n as usize));
            thread.join().unwrap();
            inbox.take(|n| seen.push(n as usize));
            assert!(seen.iter().position(|&n| n == a) < seen.iter().position(|&n| n == b));
            seen.sort_unstable();
            let mut expected = [a, b, c];
            expected.sort_unstable();
            assert_eq!(seen, expected);
            free(&all);
        });
    }

    /// A worker that is about to sleep relies on this: a task is in the inbox or counted.
    #[cfg(loom)]
    #[test]
    fn a_thread_that_finds_it_empty_sees_what_the_taker_wrote() {
        use crate::atomic::AtomicU32;
        loom::model(|| {
            let shared = loom::sync::Arc::new((Inbox::default(), AtomicU32::new(0)));
            let all = nodes::<1>();
            // SAFETY: the node lives until `free`, and is pushed once.
            unsafe { shared.0.push(all[0]) };
            let other = shared.clone();
            let taker = loom::thread::spawn(move || {
                other.1.store(1, Ordering::Relaxed);
                other.0.take(|_| ());
            });
            let is_empty = shared.0.is_empty();
            assert!(!is_empty || shared.1.load(Ordering::Relaxed) == 1);
            taker.join().unwrap();
            free(&all);
        });
    }
}
