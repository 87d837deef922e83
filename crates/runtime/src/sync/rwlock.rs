//! Many readers or one writer.

use super::WaitQueue;
use heddle_sys::sync::RwWord;
use lock_api::GuardSend;

/// The lock under [`RwLock`]. Writers that wait hold new readers back, so that they are not starved.
/// Model-checked in `heddle-sys`.
pub struct RawRwLock {
    word: RwWord,
    waiters: WaitQueue,
}

/// A reader-writer lock, as `std::sync::RwLock` without poisoning.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// Shared access to the contents of a [`RwLock`].
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// Exclusive access to the contents of a [`RwLock`].
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

// SAFETY: the word lets one writer or any number of readers in; each unlock undoes one lock.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawRwLock = RawRwLock { word: RwWord::new(), waiters: WaitQueue::new() };
    type GuardMarker = GuardSend;

    fn lock_shared(&self) {
        while !self.try_lock_shared() {
            self.waiters.wait_while(|| self.word.bars_readers(), None);
        }
    }

    fn try_lock_shared(&self) -> bool {
        self.word.try_read()
    }

    unsafe fn unlock_shared(&self) {
        if self.word.end_read() {
            self.wake();
        }
    }

    fn lock_exclusive(&self) {
        if self.try_lock_exclusive() {
            return;
        }
        self.word.writer_waits();
        while !self.try_lock_exclusive() {
            self.waiters.wait_while(|| self.word.is_locked(), None);
        }
        self.word.writer_came();
    }

    fn try_lock_exclusive(&self) -> bool {
        self.word.try_write()
    }

    unsafe fn unlock_exclusive(&self) {
        self.word.end_write();
        self.wake();
    }

    fn is_locked(&self) -> bool {
        self.word.is_locked()
    }
}

impl RawRwLock {
    /// Everybody looks again: readers and writers share one queue. The lock in `wake_all` orders this after the state's
    /// change and before any waiter's check.
    fn wake(&self) {
        self.waiters.wake_all();
    }
}
