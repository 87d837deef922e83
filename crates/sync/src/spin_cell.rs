//! A value behind a spin lock.

use super::SpinLock;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// A value under a [`SpinLock`]: a single thread uses it at a time. Holders must not be preempted by the runtime, and
/// hold it for microseconds at most.
#[derive(Default)]
pub struct SpinCell<T> {
    lock: SpinLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock admits one user of the value at a time.
unsafe impl<T: Send> Sync for SpinCell<T> {}

/// The right to use the value of a [`SpinCell`], until it is dropped.
pub struct SpinGuard<'a, T> {
    cell: &'a SpinCell<T>,
    /// The holder must stay on its thread: it must not be preempted.
    not_send: PhantomData<*mut ()>,
}

impl<T> SpinCell<T> {
    /// Returns a cell with this value.
    pub fn new(value: T) -> SpinCell<T> {
        SpinCell { lock: SpinLock::default(), value: UnsafeCell::new(value) }
    }

    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        self.lock.lock();
        SpinGuard { cell: self, not_send: PhantomData }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        self.lock.try_lock().then(|| SpinGuard { cell: self, not_send: PhantomData })
    }
}

impl<T> fmt::Debug for SpinCell<T> {
    /// Does not look at the value: that would take the lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinCell").finish_non_exhaustive()
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard's owner holds the lock.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard's owner holds the lock, and this borrows the only guard.
        unsafe { &mut *self.cell.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.cell.lock.unlock();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_uses_the_value() {
        let cell = SpinCell::new(0_u64);
        let rounds = if cfg!(miri) { 50 } else { 5_000 };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..rounds {
                        match round % 2 {
                            0 => *cell.lock() += 1,
                            _ => *cell.try_lock().unwrap_or_else(|| cell.lock()) += 1,
                        }
                    }
                });
            }
        });
        assert_eq!(*cell.lock(), 3 * rounds);
        let _held = cell.lock();
        assert!(cell.try_lock().is_none());
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::atomic::{AtomicU32, Ordering};
    use loom::sync::Arc;

    /// A lane as its owner and a helper see it: frames are counted without the lock, and taken under it. Each looks
    /// again as long as frames wait, also if the other has the lock, who may have looked before they came.
    struct Lane {
        waiting: AtomicU32,
        taken: SpinCell<u32>,
    }

    impl Lane {
        /// Returns once nothing waits.
        fn take(&self) {
            while self.waiting.load(Ordering::Acquire) > 0 {
                match self.taken.try_lock() {
                    Some(mut taken) => *taken += self.waiting.swap(0, Ordering::AcqRel),
                    None => loom::thread::yield_now(),
                }
            }
        }
    }

    #[test]
    fn no_frame_is_left_when_owner_and_helper_have_looked() {
        loom::model(|| {
            let lane = Arc::new(Lane { waiting: AtomicU32::new(1), taken: SpinCell::new(0) });
            let helper = {
                let lane = lane.clone();
                loom::thread::spawn(move || lane.take())
            };
            lane.waiting.fetch_add(1, Ordering::AcqRel);
            lane.take();
            helper.join().unwrap();
            assert_eq!((lane.waiting.load(Ordering::Acquire), *lane.taken.lock()), (0, 2));
        });
    }
}
