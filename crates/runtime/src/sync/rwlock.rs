//! Many readers or one writer.

use super::WaitQueue;
use lock_api::GuardSend;
use std::sync::atomic::{AtomicU32, Ordering};

/// Held by a writer; any smaller number counts readers.
const WRITER: u32 = u32::MAX;

/// The lock under [`RwLock`]. Writers that wait hold new readers back, so that they are not starved.
pub struct RawRwLock {
    state: AtomicU32,
    writers_waiting: AtomicU32,
    waiters: WaitQueue,
}

/// A reader-writer lock, as `std::sync::RwLock` without poisoning.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// Shared access to the contents of a [`RwLock`].
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// Exclusive access to the contents of a [`RwLock`].
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

// SAFETY: the state becomes WRITER only from 0, and counts readers otherwise; each unlock undoes one lock.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawRwLock = RawRwLock {
        state: AtomicU32::new(0),
        writers_waiting: AtomicU32::new(0),
        waiters: WaitQueue::new(),
    };
    type GuardMarker = GuardSend;

    fn lock_shared(&self) {
        while !self.try_lock_shared() {
            let held = || {
                self.state.load(Ordering::SeqCst) == WRITER
                    || self.writers_waiting.load(Ordering::SeqCst) != 0
            };
            self.waiters.wait_while(held, None);
        }
    }

    fn try_lock_shared(&self) -> bool {
        let join = |s: u32| (s < WRITER - 1).then(|| s + 1);
        self.writers_waiting.load(Ordering::SeqCst) == 0
            && self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, join).is_ok()
    }

    unsafe fn unlock_shared(&self) {
        if self.state.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.wake();
        }
    }

    fn lock_exclusive(&self) {
        if self.try_lock_exclusive() {
            return;
        }
        self.writers_waiting.fetch_add(1, Ordering::SeqCst);
        while !self.try_lock_exclusive() {
            self.waiters.wait_while(|| self.state.load(Ordering::SeqCst) != 0, None);
        }
        self.writers_waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn try_lock_exclusive(&self) -> bool {
        self.state.compare_exchange(0, WRITER, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    unsafe fn unlock_exclusive(&self) {
        self.state.store(0, Ordering::SeqCst);
        self.wake();
    }

    fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) != 0
    }
}

impl RawRwLock {
    /// Everybody looks again: readers and writers share one queue. The lock in `wake_all` orders this after the state's
    /// change and before any waiter's check.
    fn wake(&self) {
        self.waiters.wake_all();
    }
}
