//! A parking lot: waiters queued by the address for which they wait, so that the objects themselves need no queue.
//!
//! Any word of memory can be waited for, in the state that its owner gave it: a mutex of the C library, a futex of a
//! program. Each address belongs to one of [`BUCKETS`] lists, in order of arrival, under a spin lock. A waiter checks
//! its condition and joins under that lock; a waker changes the condition first and then looks at the list, so it is
//! either seen by the check or finds the waiter. A waker takes a node out under the lock, with the right to wake its
//! owner, and touches it no more once `woken` is set; a waiter whose time is up withdraws under the lock, unless it was
//! already taken out, and then it *was* woken. A requeued waiter has changed its address, and perhaps its bucket, under
//! the locks of both: who withdraws looks at the address again once it has the lock.

use super::atomic::{AtomicU32, AtomicUsize, Ordering};
use super::lock::Lock;
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::ptr;

/// The number of lists. Two addresses in one list cost a comparison each, nothing else.
#[cfg(not(loom))]
const BUCKETS: usize = 1024;
#[cfg(loom)]
const BUCKETS: usize = 2;

/// How many waiters are taken out at a time, to be woken without the lock.
const BATCH: usize = 16;

/// See the module docs. `W` says whom to wake. Callers must not be preempted by the runtime while they are in here.
pub struct Lot<W> {
    buckets: [Bucket<W>; BUCKETS],
}

/// Loom takes sequentially consistent accesses for acquiring and releasing ones, but knows fences.
#[inline(always)]
fn order_for_loom() {
    #[cfg(loom)]
    super::atomic::fence(Ordering::SeqCst);
}

#[repr(align(64))]
struct Bucket<W> {
    lock: Lock,
    /// Written under the lock. A waker that finds 0 after a full fence has no waiter to wake.
    len: AtomicU32,
    ends: UnsafeCell<Ends<W>>,
}

struct Ends<W> {
    head: *const LotNode<W>,
    tail: *const LotNode<W>,
}

/// A waiter, on its own stack.
pub struct LotNode<W> {
    who: W,
    /// A waker with a mask passes by those that share no bit with it, as FUTEX_WAKE_BITSET does.
    bits: u32,
    key: AtomicUsize,
    next: Cell<*const LotNode<W>>,
    prev: Cell<*const LotNode<W>>,
    woken: AtomicU32,
}

/// Where a debugger finds the waiters of a [`Lot`]. Sizes and offsets are in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LotLayout {
    buckets: u32,
    bucket_size: u32,
    /// In a bucket: the address of its first node, or 0.
    head: u32,
    /// In a node: the address of the next one, or 0.
    next: u32,
    /// In a node: the address for which it waits.
    key: u32,
    /// In a node: its `W`.
    who: u32,
}

impl<W> Lot<W> {
    /// The layout of these lots.
    pub const LAYOUT: LotLayout = LotLayout {
        buckets: BUCKETS as u32,
        bucket_size: size_of::<Bucket<W>>() as u32,
        head: (offset_of!(Bucket<W>, ends) + offset_of!(Ends<W>, head)) as u32,
        next: offset_of!(LotNode<W>, next) as u32,
        key: offset_of!(LotNode<W>, key) as u32,
        who: offset_of!(LotNode<W>, who) as u32,
    };
}

// SAFETY: the ends and the nodes' links are used under the lock only.
unsafe impl<W: Send> Sync for Lot<W> {}
// SAFETY: as above.
unsafe impl<W: Send> Send for Lot<W> {}

impl<W: Copy> LotNode<W> {
    /// Returns a node for `who`, which does not wait yet, and will be woken by masks that share a bit with `bits`.
    #[inline]
    pub fn new(who: W, bits: u32) -> LotNode<W> {
        LotNode {
            who,
            bits,
            key: AtomicUsize::new(0),
            next: Cell::new(ptr::null()),
            prev: Cell::new(ptr::null()),
            woken: AtomicU32::new(0),
        }
    }

    /// Returns whether it was taken out to be woken.
    #[inline]
    pub fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire) != 0
    }

    /// Returns the address for which it waits, or was waiting when it was woken: another than the one it joined for
    /// if it was requeued.
    pub fn key(&self) -> usize {
        self.key.load(Ordering::Acquire)
    }
}

impl<W> Bucket<W> {
    #[cfg(not(loom))]
    const fn new() -> Bucket<W> {
        Bucket {
            lock: Lock::new(),
            len: AtomicU32::new(0),
            ends: UnsafeCell::new(Ends { head: ptr::null(), tail: ptr::null() }),
        }
    }

    #[cfg(not(loom))]
    fn is_touched(&self) -> bool {
        self.lock.is_locked() || self.len.load(Ordering::Relaxed) != 0
    }

    /// Makes it empty and unlocked.
    ///
    /// # Safety
    /// Nothing else uses it, and no waiter of it is left.
    #[cfg(not(loom))]
    unsafe fn clear(&self) {
        // SAFETY: by the caller's promise.
        unsafe { *self.ends.get() = Ends { head: ptr::null(), tail: ptr::null() } };
        self.len.store(0, Ordering::Relaxed);
        if self.lock.is_locked() {
            self.lock.unlock();
        }
    }

    #[cfg(loom)]
    fn new() -> Bucket<W> {
        Bucket {
            lock: Lock::default(),
            len: AtomicU32::new(0),
            ends: UnsafeCell::new(Ends { head: ptr::null(), tail: ptr::null() }),
        }
    }
}

#[cfg(not(loom))]
impl<W: Copy> Default for Lot<W> {
    fn default() -> Self {
        Lot::new()
    }
}

impl<W: Copy> Lot<W> {
    /// Returns an empty lot.
    #[cfg(not(loom))]
    pub const fn new() -> Lot<W> {
        Lot { buckets: [const { Bucket::new() }; BUCKETS] }
    }

    /// Returns an empty lot.
    #[cfg(loom)]
    pub fn new() -> Lot<W> {
        Lot { buckets: core::array::from_fn(|_| Bucket::new()) }
    }

    /// Empties the lists that another thread was changing when a thread forked. The rest stays: the child has the
    /// waiters that the caller could wake.
    ///
    /// # Safety
    /// The caller is the only thread of the child of a fork, and was not in here when it forked.
    #[cfg(not(loom))]
    pub unsafe fn release(&self) {
        for bucket in self.buckets.iter().filter(|bucket| bucket.lock.is_locked()) {
            // SAFETY: by the caller's promise nothing else uses the list.
            unsafe { bucket.clear() };
        }
    }

    /// Empties all lists, whose waiters are gone.
    ///
    /// # Safety
    /// As for [`Lot::release`].
    #[cfg(not(loom))]
    pub unsafe fn clear(&self) {
        for bucket in self.buckets.iter().filter(|bucket| bucket.is_touched()) {
            // SAFETY: as above.
            unsafe { bucket.clear() };
        }
    }

    #[inline]
    fn bucket(&self, key: usize) -> &Bucket<W> {
        // Fibonacci hashing; the low bits of an address say little.
        let hash = (key as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.buckets[hash as usize % BUCKETS]
    }

    /// Joins the waiters for `key` if `condition` holds under their lock. Returns whether it did. `condition` only
    /// loads and stores.
    ///
    /// # Safety
    /// A node that has joined stays where it is until [`LotNode::is_woken`] or [`Lot::withdraw`] returned true. A node
    /// joins once.
    #[inline]
    pub unsafe fn join_if(
        &self,
        key: usize,
        node: &LotNode<W>,
        condition: impl FnOnce() -> bool,
    ) -> bool {
        let bucket = self.bucket(key);
        bucket.lock.with(|| {
            // Before the condition is read: a waker that changes it afterwards sees the count.
            bucket.len.fetch_add(1, Ordering::SeqCst);
            order_for_loom();
            let wait = condition();
            if wait {
                node.key.store(key, Ordering::Relaxed);
                bucket.push(node);
            } else {
                bucket.len.fetch_sub(1, Ordering::Relaxed);
            }
            wait
        })
    }

    /// Takes `node`, which has joined, out if it still waits. Returns whether it did; if not, it was woken.
    pub fn withdraw(&self, node: &LotNode<W>) -> bool {
        loop {
            let key = node.key.load(Ordering::Acquire);
            let bucket = self.bucket(key);
            let withdrawn = bucket.lock.with(|| {
                if node.key.load(Ordering::Acquire) != key {
                    return None;
                }
                let waits = node.woken.load(Ordering::Acquire) == 0;
                if waits {
                    bucket.unlink(node);
                    bucket.len.fetch_sub(1, Ordering::Relaxed);
                }
                Some(waits)
            });
            if let Some(waits) = withdrawn {
                return waits;
            }
        }
    }

    /// Returns whether there may be waiters for `key`. If not, there is none to wake for a change made before by a
    /// sequentially consistent read-modify-write operation.
    #[inline]
    pub fn has_waiters(&self, key: usize) -> bool {
        order_for_loom();
        self.bucket(key).len.load(Ordering::SeqCst) != 0
    }

    /// Takes out up to `most` waiters for `key` that share a bit with `bits`, those that have waited longest first,
    /// and calls `wake` on each without the lock. Returns how many: no more than were waiting when it began.
    ///
    /// The caller has changed what they wait for by a sequentially consistent read-modify-write operation.
    #[inline]
    pub fn wake(&self, key: usize, most: usize, bits: u32, mut wake: impl FnMut(W)) -> usize {
        let bucket = self.bucket(key);
        if !self.has_waiters(key) {
            return 0;
        }
        let (mut woken, mut most) = (0, most);
        loop {
            let mut batch = [const { None }; BATCH];
            let found = bucket.lock.with(|| {
                if woken == 0 {
                    // Those that are there now: one that is woken and waits again must not be woken by the same call,
                    // which might never end.
                    most = most.min(bucket.len.load(Ordering::Relaxed) as usize);
                }
                bucket.take(key, bits, &mut batch[..(most - woken).min(BATCH)])
            });
            batch.iter().flatten().for_each(|&who| wake(who));
            woken += found;
            if found < BATCH || woken == most {
                return woken;
            }
        }
    }

    /// Wakes up to `wake_most` waiters for `from` and moves up to `move_most` of the others to the end of those for
    /// `to`, if `condition` holds under the locks of both. Returns how many were woken and moved; `None` if it did not
    /// hold. `moved` is called under the locks if any waiter moves.
    pub fn requeue(
        &self,
        from: usize,
        to: usize,
        (wake_most, move_most): (usize, usize),
        condition: impl FnOnce() -> bool,
        moved: impl Fn(),
        mut wake: impl FnMut(W),
    ) -> Option<(usize, usize)> {
        let (source, target) = (self.bucket(from), self.bucket(to));
        let mut batch = [const { None }; BATCH];
        let at_once = wake_most.min(BATCH);
        let result = Self::with_both(source, target, || {
            if !condition() {
                return None;
            }
            let woken = source.take(from, u32::MAX, &mut batch[..at_once]);
            let mut count = 0;
            if woken == wake_most {
                count = source.move_to(target, from, to, move_most);
            }
            if count > 0 {
                moved();
            }
            Some((woken, count))
        });
        batch.iter().flatten().for_each(|&who| wake(who));
        let (woken, count) = result?;
        if woken < at_once || woken == wake_most {
            return Some((woken, count));
        }
        // More must be woken than fit in a batch: wake the rest of them, and only then move any.
        let more = self.wake(from, wake_most - woken, u32::MAX, &mut wake);
        if woken + more < wake_most || move_most == 0 {
            return Some((woken + more, 0));
        }
        let count = Self::with_both(source, target, || {
            let count = source.move_to(target, from, to, move_most);
            if count > 0 {
                moved();
            }
            count
        });
        Some((woken + more, count))
    }

    /// Runs `f` with both locks, taken in the order of their addresses.
    fn with_both<R>(a: &Bucket<W>, b: &Bucket<W>, f: impl FnOnce() -> R) -> R {
        if ptr::eq(a, b) {
            return a.lock.with(f);
        }
        let (first, second) = if ptr::from_ref(a) < ptr::from_ref(b) { (a, b) } else { (b, a) };
        first.lock.with(|| second.lock.with(f))
    }
}

// Everything below runs under the bucket's lock.
impl<W: Copy> Bucket<W> {
    fn push(&self, node: &LotNode<W>) {
        // SAFETY: the lock is held; nodes in the list are where they joined (`join_if`).
        unsafe {
            let ends = &mut *self.ends.get();
            node.next.set(ptr::null());
            node.prev.set(ends.tail);
            match ends.tail.as_ref() {
                Some(tail) => tail.next.set(node),
                None => ends.head = node,
            }
            ends.tail = node;
        }
    }

    fn unlink(&self, node: &LotNode<W>) {
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
    }

    /// Calls `each` on the waiters for `key` in order until it returns false. `each` may unlink its node.
    fn each(&self, key: usize, mut each: impl FnMut(&LotNode<W>) -> bool) {
        // SAFETY: as in `push`; the link is read before the node may go.
        unsafe {
            let mut at = (*self.ends.get()).head;
            while let Some(node) = at.as_ref() {
                at = node.next.get();
                if node.key.load(Ordering::Relaxed) == key && !each(node) {
                    return;
                }
            }
        }
    }

    /// Takes waiters out until `out` is full; returns how many.
    fn take(&self, key: usize, bits: u32, out: &mut [Option<W>]) -> usize {
        let mut taken = 0;
        if out.is_empty() {
            return 0;
        }
        self.each(key, |node| {
            if node.bits & bits != 0 {
                self.unlink(node);
                out[taken] = Some(node.who);
                taken += 1;
                // The last access: its owner may leave now.
                node.woken.store(1, Ordering::Release);
            }
            taken < out.len()
        });
        self.len.fetch_sub(taken as u32, Ordering::Relaxed);
        taken
    }

    /// Moves up to `most` waiters for `from` to `target`, whose lock is held, too.
    fn move_to(&self, target: &Bucket<W>, from: usize, to: usize, most: usize) -> usize {
        let mut moved = 0;
        if most == 0 || from == to {
            return 0;
        }
        self.each(from, |node| {
            self.unlink(node);
            target.push(node);
            node.key.store(to, Ordering::Release);
            moved += 1;
            moved < most
        });
        self.len.fetch_sub(moved as u32, Ordering::Relaxed);
        target.len.fetch_add(moved as u32, Ordering::SeqCst);
        moved
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ALL: u32 = u32::MAX;

    fn waiting(lot: &Lot<u32>, key: usize, names: &[(u32, u32)]) -> Vec<&'static LotNode<u32>> {
        let join = |&(who, bits): &(u32, u32)| {
            let node: &'static _ = Box::leak(Box::new(LotNode::new(who, bits)));
            // SAFETY: leaked, so it stays.
            assert!(unsafe { lot.join_if(key, node, || true) });
            node
        };
        names.iter().map(join).collect()
    }

    fn wake(lot: &Lot<u32>, key: usize, most: usize, bits: u32) -> Vec<u32> {
        let mut woken = vec![];
        assert_eq!(lot.wake(key, most, bits, |who| woken.push(who)), woken.len());
        woken
    }

    #[test]
    fn waiters_are_woken_in_order_and_by_address_and_mask() {
        let lot = Box::new(Lot::new());
        waiting(&lot, 8, &[(1, ALL), (2, 0b01), (3, 0b10)]);
        waiting(&lot, 16, &[(4, ALL)]);
        assert_eq!(wake(&lot, 24, 9, ALL), []);
        assert_eq!(wake(&lot, 8, 9, 0b10), [1, 3]);
        assert_eq!(wake(&lot, 8, 1, ALL), [2]);
        assert_eq!(wake(&lot, 8, 1, ALL), []);
        assert_eq!(wake(&lot, 16, 1, ALL), [4]);
    }

    #[test]
    fn a_condition_that_does_not_hold_keeps_a_waiter_out() {
        let lot = Box::new(Lot::new());
        let node = LotNode::new(1, ALL);
        // SAFETY: it does not join.
        assert!(!unsafe { lot.join_if(8, &node, || false) });
        assert_eq!(wake(&lot, 8, 1, ALL), []);
    }

    #[test]
    fn more_than_a_batch_is_woken_whole() {
        let lot = Box::new(Lot::new());
        let names: Vec<_> = (0..3 * BATCH as u32 + 1).map(|i| (i, ALL)).collect();
        waiting(&lot, 8, &names);
        assert_eq!(wake(&lot, 8, usize::MAX, ALL), (0..names.len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn a_call_does_not_wake_again_those_that_wait_again() {
        let lot = Box::new(Lot::new());
        let names: Vec<_> = (0..3 * BATCH as u32).map(|i| (i, ALL)).collect();
        waiting(&lot, 8, &names);
        let woken = lot.wake(8, usize::MAX, ALL, |who| drop(waiting(&lot, 8, &[(who, ALL)])));
        assert_eq!(woken, names.len());
    }

    #[test]
    fn a_child_keeps_the_waiters_of_lists_that_no_thread_was_changing() {
        let lot = Box::new(Lot::new());
        waiting(&lot, 8, &[(1, ALL)]);
        waiting(&lot, 16, &[(2, ALL)]);
        lot.bucket(8).lock.lock();
        // SAFETY: the test is the lot's only user.
        unsafe { lot.release() };
        assert_eq!(wake(&lot, 8, 1, ALL), []);
        assert_eq!(wake(&lot, 16, 1, ALL), [2]);
        waiting(&lot, 16, &[(3, ALL)]);
        // SAFETY: as above.
        unsafe { lot.clear() };
        assert_eq!(wake(&lot, 16, 1, ALL), []);
    }

    #[test]
    fn requeued_waiters_follow_those_of_the_other_address_and_can_withdraw() {
        let lot = Box::new(Lot::new());
        let here = waiting(&lot, 8, &[(1, ALL), (2, ALL), (3, ALL), (4, ALL)]);
        waiting(&lot, 16, &[(5, ALL)]);
        let (mut woken, reported) = (vec![], Cell::new(false));
        let moved =
            lot.requeue(8, 16, (1, 2), || true, || reported.set(true), |who| woken.push(who));
        assert_eq!((moved, woken, reported.get()), (Some((1, 2)), vec![1], true));
        assert_eq!(lot.requeue(8, 16, (1, 1), || false, || (), |_| ()), None);
        assert!(here[0].is_woken() && here[1].key() == 16 && here[3].key() == 8);
        assert!(lot.withdraw(here[1]) && !lot.withdraw(here[0]));
        assert_eq!(wake(&lot, 16, 9, ALL), [5, 3]);
        assert_eq!(wake(&lot, 8, 9, ALL), [4]);
    }

    #[test]
    fn a_requeue_that_wakes_more_than_a_batch_moves_only_the_rest() {
        let lot = Box::new(Lot::new());
        let names: Vec<_> = (0..40).map(|i| (i, ALL)).collect();
        waiting(&lot, 8, &names);
        let mut woken = 0;
        let moved = lot.requeue(8, 16, (20, 5), || true, || (), |_| woken += 1);
        assert_eq!((moved, woken), (Some((20, 5)), 20));
        assert_eq!(wake(&lot, 16, 99, ALL), [20, 21, 22, 23, 24]);
        assert_eq!(wake(&lot, 8, 99, ALL).len(), 15);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32 as Cell;

    const ALL: u32 = u32::MAX;

    struct World {
        lot: Lot<u32>,
        word: Cell,
        /// Set when the waiter with this number is woken.
        wakes: [Cell; 2],
    }

    fn world() -> Arc<World> {
        Arc::new(World { lot: Lot::new(), word: Cell::new(0), wakes: [Cell::new(0), Cell::new(0)] })
    }

    fn check(f: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(f);
    }

    #[test]
    fn a_change_is_seen_or_its_waker_finds_the_waiter() {
        check(|| {
            let w = world();
            let other = w.clone();
            let waker = loom::thread::spawn(move || {
                other.word.swap(1, Ordering::SeqCst);
                other.lot.wake(8, 1, ALL, |who| {
                    other.wakes[who as usize].store(1, Ordering::Release);
                });
            });
            let node: &'static _ = Box::leak(Box::new(LotNode::new(0, ALL)));
            // SAFETY: leaked, so it stays.
            let waits = unsafe { w.lot.join_if(8, node, || w.word.load(Ordering::SeqCst) == 0) };
            waker.join().unwrap();
            assert_eq!(waits, node.is_woken(), "a wake was lost");
            assert_eq!(waits, w.wakes[0].load(Ordering::Acquire) == 1);
        });
    }

    #[test]
    fn a_waiter_that_gives_up_was_woken_or_is_not_found() {
        check(|| {
            let w = world();
            let node = LotNode::new(0, ALL);
            let node: &'static _ = Box::leak(Box::new(node));
            // SAFETY: leaked, so it stays.
            assert!(unsafe { w.lot.join_if(8, node, || true) });
            let other = w.clone();
            let waker = loom::thread::spawn(move || other.lot.wake(8, 1, ALL, |_| ()));
            let withdrawn = w.lot.withdraw(node);
            assert_eq!(waker.join().unwrap(), usize::from(!withdrawn));
            assert_eq!(node.is_woken(), !withdrawn);
        });
    }

    #[test]
    fn a_waiter_gives_up_while_it_is_requeued() {
        check(|| {
            let w = world();
            let node: &'static _ = Box::leak(Box::new(LotNode::new(0, ALL)));
            // SAFETY: leaked, so it stays.
            assert!(unsafe { w.lot.join_if(8, node, || true) });
            let other = w.clone();
            let mover = loom::thread::spawn(move || {
                other.lot.requeue(8, 12, (0, 1), || true, || (), |_| ()).unwrap().1
            });
            let withdrawn = w.lot.withdraw(node);
            let _ = mover.join().unwrap();
            assert!(withdrawn && !node.is_woken());
            assert_eq!(w.lot.wake(8, 9, ALL, |_| ()) + w.lot.wake(12, 9, ALL, |_| ()), 0);
        });
    }

    #[test]
    fn a_requeued_waiter_is_found_at_its_new_address() {
        check(|| {
            let w = world();
            let node: &'static _ = Box::leak(Box::new(LotNode::new(0, ALL)));
            // SAFETY: leaked, so it stays.
            assert!(unsafe { w.lot.join_if(8, node, || true) });
            let other = w.clone();
            let mover = loom::thread::spawn(move || {
                other.lot.requeue(8, 12, (0, 1), || true, || (), |_| ()).unwrap();
                other.lot.wake(12, 1, ALL, |_| ())
            });
            let here = w.lot.wake(8, 1, ALL, |_| ());
            assert_eq!(here + mover.join().unwrap(), 1, "woken once, by one of the two");
            assert!(node.is_woken());
        });
    }
}
