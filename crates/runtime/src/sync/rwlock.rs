//! Many readers or one writer.

use super::WaitQueue;
use super::waiter::Limit;
use crate::deadline::{deadline_after, deadline_at};
use heddle_sync::RwWord;
use lock_api::{GuardSend, RawRwLock as _};
use std::time::{Duration, Instant};

/// The lock under [`RwLock`]. Waiting writers hold new readers back, so that they are not starved. Model-checked with
/// its wait list.
pub struct RawRwLock {
    word: RwWord,
    waiters: WaitQueue,
}

/// A reader-writer lock: `std::sync::RwLock` without poisoning. `try_read_for`, `try_write_for` and their `_until`
/// twins limit the wait; [`CancellationToken::read`](super::CancellationToken::read) and
/// [`write`](super::CancellationToken::write) end it when a token is cancelled.
///
/// ```
/// use heddle_rt::sync::RwLock;
/// use std::time::Duration;
///
/// let lock = RwLock::new(1);
/// let reader = lock.read();
/// assert!(lock.try_write_for(Duration::from_millis(1)).is_none());
/// assert!(lock.try_read_for(Duration::from_millis(1)).is_some());
/// # drop(reader);
/// ```
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// Shared access to the contents of a [`RwLock`].
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// Exclusive access to the contents of a [`RwLock`].
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

// SAFETY: the word admits one writer or any number of readers; each unlock undoes one lock.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawRwLock = RawRwLock { word: RwWord::new(), waiters: WaitQueue::new() };
    type GuardMarker = GuardSend;

    fn lock_shared(&self) {
        self.read_limited(None);
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
        self.write_limited(None);
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

// SAFETY: true is returned only after the word admitted the caller.
unsafe impl lock_api::RawRwLockTimed for RawRwLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.read_limited(deadline_after(timeout))
    }

    fn try_lock_shared_until(&self, timeout: Instant) -> bool {
        self.read_limited(deadline_at(timeout))
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.write_limited(deadline_after(timeout))
    }

    fn try_lock_exclusive_until(&self, timeout: Instant) -> bool {
        self.write_limited(deadline_at(timeout))
    }
}

impl RawRwLock {
    /// Admits the caller as a reader, waiting within `limit`; whether it did.
    pub(super) fn read_limited(&self, limit: impl Limit) -> bool {
        let mut in_time = true;
        while !self.try_lock_shared() {
            if !in_time {
                return false;
            }
            in_time = self.waiters.wait_while(|| self.word.bars_readers(), limit);
        }
        true
    }

    /// Admits the caller as the writer, waiting within `limit`; whether it did.
    pub(super) fn write_limited(&self, limit: impl Limit) -> bool {
        if self.try_lock_exclusive() {
            return true;
        }
        self.word.writer_waits();
        let mut in_time = true;
        while !self.try_lock_exclusive() {
            if !in_time {
                // The readers that this writer held back may enter now.
                self.word.writer_came();
                self.wake();
                return false;
            }
            in_time = self.waiters.wait_while(|| self.word.is_locked(), limit);
        }
        self.word.writer_came();
        true
    }

    /// Wakes all waiters: readers and writers share one queue. The lock in `wake_all` orders this after the state's
    /// change and before any waiter's check.
    fn wake(&self) {
        self.waiters.wake_all();
    }
}
