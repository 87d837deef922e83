//! Mutual exclusion.

use super::WaitQueue;
use super::waiter::Limit;
use crate::deadline::{deadline_after, deadline_at};
use heddle_sync::LockWord;
use lock_api::{GuardSend, RawMutex as _};
use std::time::{Duration, Instant};

/// The lock under [`Mutex`]: one word, with one atomic operation to take it and one to release it. Not fair: a
/// running party may take it before a waiting one. Model-checked with its wait list.
pub struct RawMutex {
    word: LockWord,
    waiters: WaitQueue,
}

/// A mutual exclusion lock: `std::sync::Mutex` without poisoning. `try_lock_for` and `try_lock_until` limit the wait;
/// [`CancellationToken::lock`](super::CancellationToken::lock) ends it when a token is cancelled.
///
/// ```
/// use heddle_rt::sync::Mutex;
/// use std::time::Duration;
///
/// let mutex = Mutex::new(1);
/// let guard = mutex.lock();
/// assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none());
/// drop(guard);
/// *mutex.try_lock_for(Duration::from_millis(1)).unwrap() += 1;
/// ```
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// Exclusive access to the contents of a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

// SAFETY: `lock` returns only after this caller changed the word from free, and no other can do so until `unlock`.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawMutex = RawMutex { word: LockWord::new(), waiters: WaitQueue::new() };
    // A task moves between kernel threads with its guards.
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.word.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        if self.word.unlock() {
            self.wake();
        }
    }

    fn is_locked(&self) -> bool {
        self.word.is_locked()
    }
}

// SAFETY: true is returned only after `try_lock` or `contend` took the word.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.try_lock() || self.lock_limited(deadline_after(timeout))
    }

    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.try_lock() || self.lock_limited(deadline_at(timeout))
    }
}

impl RawMutex {
    #[cold]
    fn lock_slow(&self) {
        while !self.word.contend() {
            self.waiters.wait_while(|| self.word.is_contended(), None);
        }
    }

    /// Takes the lock, waiting within `limit`; whether it did.
    ///
    /// A wake-up that this caller got and could not use is not lost: the failed `contend` before the return has
    /// marked the word as contended, so that the next `unlock` wakes another waiter.
    #[cold]
    pub(super) fn lock_limited(&self, limit: impl Limit) -> bool {
        let mut in_time = true;
        while !self.word.contend() {
            if !in_time {
                return false;
            }
            in_time = self.waiters.wait_while(|| self.word.is_contended(), limit);
        }
        true
    }

    /// Takes the lock. As in [`RawMutex::lock_limited`], a wake-up that finds the lock taken marks the word.
    async fn lock_async(&self) {
        if !self.try_lock() {
            let take = || self.word.contend().then_some(());
            self.waiters.until(take, || self.word.is_contended()).await;
        }
    }

    #[cold]
    fn wake(&self) {
        self.waiters.wake_one();
    }
}

/// What a [`Mutex`] can do beyond `lock_api`.
pub trait MutexExt: sealed::Mutex {
    /// What the mutex protects.
    type Value: ?Sized;

    /// Takes the lock; a future that waits. It is cancel-safe, and `Send` if the guard is.
    ///
    /// A guard may be held across an `await`, and passed to another thread. (Clippy's `await_holding_lock` warns of
    /// that: it takes the guard for that of a lock that only blocks threads.)
    ///
    /// ```
    /// use heddle_rt::sync::{Mutex, MutexExt as _};
    ///
    /// let mutex = Mutex::new(1);
    /// heddle_rt::block_on(async { *mutex.lock_async().await += 1 });
    /// assert_eq!(mutex.into_inner(), 2);
    /// ```
    fn lock_async(&self) -> impl Future<Output = MutexGuard<'_, Self::Value>>;
}

impl<T: ?Sized> MutexExt for Mutex<T> {
    type Value = T;

    async fn lock_async(&self) -> MutexGuard<'_, T> {
        // SAFETY: the lock is taken through this reference and not released.
        unsafe { self.raw() }.lock_async().await;
        // SAFETY: the lock was taken, and no guard was made of that.
        unsafe { self.make_guard_unchecked() }
    }
}

mod sealed {
    pub trait Mutex {}
    impl<T: ?Sized> Mutex for super::Mutex<T> {}
}
