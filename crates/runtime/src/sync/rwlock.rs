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

    /// Admits the caller as a reader.
    async fn read_async(&self) {
        let enter = || self.try_lock_shared().then_some(());
        self.waiters.until(enter, || self.word.bars_readers()).await;
    }

    /// Admits the caller as the writer.
    async fn write_async(&self) {
        if self.try_lock_exclusive() {
            return;
        }
        let mut waiting = WaitingWriter::new(self);
        let enter = || self.try_lock_exclusive().then_some(());
        self.waiters.until(enter, || self.word.is_locked()).await;
        waiting.is_admitted = true;
    }

    /// Wakes all waiters: readers and writers share one queue. The lock in `wake_all` orders this after the state's
    /// change and before any waiter's check.
    fn wake(&self) {
        self.waiters.wake_all();
    }
}

/// A future that waits to write, and is counted.
struct WaitingWriter<'a> {
    lock: &'a RawRwLock,
    is_admitted: bool,
}

impl WaitingWriter<'_> {
    fn new(lock: &RawRwLock) -> WaitingWriter<'_> {
        lock.word.writer_waits();
        WaitingWriter { lock, is_admitted: false }
    }
}

impl Drop for WaitingWriter<'_> {
    fn drop(&mut self) {
        self.lock.word.writer_came();
        if !self.is_admitted {
            // The readers that this writer held back may enter now.
            self.lock.wake();
        }
    }
}

/// What a [`RwLock`] can do beyond `lock_api`.
pub trait RwLockExt: sealed::RwLock {
    /// What the lock protects.
    type Value: ?Sized;

    /// Takes the lock for reading; a future that waits. It is cancel-safe, and `Send` if the guard is.
    ///
    /// ```
    /// use heddle_rt::sync::{RwLock, RwLockExt as _};
    ///
    /// let lock = RwLock::new(1);
    /// heddle_rt::block_on(async {
    ///     *lock.write_async().await += 1;
    ///     assert_eq!(*lock.read_async().await, 2);
    /// });
    /// ```
    fn read_async(&self) -> impl Future<Output = RwLockReadGuard<'_, Self::Value>>;

    /// Takes the lock for writing; a future that waits. It is cancel-safe, and `Send` if the guard is. While it waits,
    /// new readers are held back.
    fn write_async(&self) -> impl Future<Output = RwLockWriteGuard<'_, Self::Value>>;
}

impl<T: ?Sized> RwLockExt for RwLock<T> {
    type Value = T;

    async fn read_async(&self) -> RwLockReadGuard<'_, T> {
        // SAFETY: the lock is taken through this reference and not released.
        unsafe { self.raw() }.read_async().await;
        // SAFETY: the lock was taken for reading, and no guard was made of that.
        unsafe { self.make_read_guard_unchecked() }
    }

    async fn write_async(&self) -> RwLockWriteGuard<'_, T> {
        // SAFETY: the lock is taken through this reference and not released.
        unsafe { self.raw() }.write_async().await;
        // SAFETY: the lock was taken for writing, and no guard was made of that.
        unsafe { self.make_write_guard_unchecked() }
    }
}

mod sealed {
    pub trait RwLock {}
    impl<T: ?Sized> RwLock for super::RwLock<T> {}
}
