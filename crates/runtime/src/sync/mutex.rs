//! Mutual exclusion.

use super::WaitQueue;
use heddle_sys::sync::LockWord;
use lock_api::GuardSend;

/// The lock under [`Mutex`]: one word, one atomic operation to take it and one to release it. Not fair: who runs may take
/// it before who waits. Model-checked in `heddle-sys`.
pub struct RawMutex {
    word: LockWord,
    waiters: WaitQueue,
}

/// A mutual exclusion lock, as `std::sync::Mutex` without poisoning.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// The right to the contents of a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

// SAFETY: `lock` returns only after this caller changed the word from free, and nobody else can do so until `unlock`.
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

impl RawMutex {
    #[cold]
    fn lock_slow(&self) {
        while !self.word.contend() {
            self.waiters.wait_while(|| self.word.is_contended(), None);
        }
    }

    #[cold]
    fn wake(&self) {
        self.waiters.wake_one();
    }
}
