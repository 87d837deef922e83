//! The lock around a run queue.

use super::atomic::{AtomicU32, Ordering};
use super::relax;

/// A lock without an owner: one thread may take it and another context on the same thread release it, as a context
/// switch under the lock requires. Holders must not be preempted by the runtime; waiters yield to a holder that loses
/// its CPU to the kernel.
#[derive(Debug, Default)]
pub struct SpinLock(AtomicU32);

impl SpinLock {
    /// Returns a free lock.
    #[cfg(not(loom))]
    pub const fn new() -> SpinLock {
        SpinLock(AtomicU32::new(0))
    }

    /// Returns a free lock.
    #[cfg(loom)]
    pub fn new() -> SpinLock {
        SpinLock(AtomicU32::new(0))
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // A failed swap would write, too, which loom does not order with the holder's release.
        self.0.load(Ordering::Relaxed) == 0
            && self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock.
    #[inline]
    pub fn lock(&self) {
        if self.0.swap(1, Ordering::Acquire) != 0 {
            self.lock_slow();
        }
    }

    #[cold]
    fn lock_slow(&self) {
        let mut round = 0;
        while !self.try_lock() {
            relax(round);
            round += 1;
        }
    }

    /// Releases the lock. The caller holds it, or inherited it from the context that took it.
    #[inline]
    pub fn unlock(&self) {
        debug_assert!(self.is_locked());
        self.0.store(0, Ordering::Release);
    }

    /// Returns whether the lock is held.
    pub fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;

    /// Each thread tries once: loom explores every interleaving of the attempts, without the endless ones in which a
    /// thread spins.
    #[test]
    fn one_holder_at_a_time() {
        loom::model(|| {
            let shared = Arc::new((SpinLock::new(), AtomicU64::new(0)));
            let add = |s: &(SpinLock, AtomicU64)| {
                if !s.0.try_lock() {
                    return 0;
                }
                // Loaded and stored separately: an overlap would lose an update.
                let seen = s.1.load(Ordering::Relaxed);
                s.1.store(seen + 1, Ordering::Relaxed);
                s.0.unlock();
                1
            };
            let other = shared.clone();
            let thread = loom::thread::spawn(move || add(&other));
            let held = add(&shared) + thread.join().unwrap();
            assert!(held >= 1, "one thread gets a free lock");
            assert_eq!(shared.1.load(Ordering::Acquire), held);
        });
    }
}
