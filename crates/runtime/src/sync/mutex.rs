//! Mutual exclusion.

use super::WaitQueue;
use lock_api::GuardSend;
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may wait.
const CONTENDED: u32 = 2;

/// The lock under [`Mutex`]: one word, one atomic operation to take it and one to release it. Not fair: who runs may take
/// it before who waits.
pub struct RawMutex {
    state: AtomicU32,
    waiters: WaitQueue,
}

/// A mutual exclusion lock, as `std::sync::Mutex` without poisoning.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// The right to the contents of a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

// SAFETY: `lock` returns only after this caller changed the state from FREE, and nobody else can do so until `unlock`.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawMutex = RawMutex { state: AtomicU32::new(FREE), waiters: WaitQueue::new() };
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
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        if self.state.swap(FREE, Ordering::Release) == CONTENDED {
            self.wake();
        }
    }

    fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }
}

impl RawMutex {
    #[cold]
    fn lock_slow(&self) {
        // Whoever has waited leaves the lock marked as contended: it cannot know whether others still wait.
        while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
            self.waiters.wait_while(|| self.state.load(Ordering::Relaxed) == CONTENDED, None);
        }
    }

    #[cold]
    fn wake(&self) {
        self.waiters.wake_one();
    }
}
