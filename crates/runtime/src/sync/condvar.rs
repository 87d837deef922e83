//! Waiting for a condition under a mutex.

use super::{MutexGuard, WaitQueue};
use heddle_core::Ns;
use lock_api::RawMutex as _;
use std::time::Duration;

/// A condition variable for [`super::Mutex`].
#[derive(Default)]
pub struct Condvar {
    waiters: WaitQueue,
}

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Condvar {
        Condvar { waiters: WaitQueue::new() }
    }

    /// Releases the mutex, waits to be notified, takes the mutex again. No spurious wake-ups, but the condition may have
    /// changed again: use [`Condvar::wait_while`] or a loop.
    #[inline]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_deadline(guard, None);
    }

    /// Waits while `condition` holds.
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Like [`Condvar::wait`] for at most `timeout`; false if that passed.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        self.wait_deadline(guard, Some(heddle_sys::clock::now() + Ns::from(timeout)))
    }

    #[inline]
    fn wait_deadline<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Ns>,
    ) -> bool {
        // SAFETY: the guard proves that the mutex is held; it is held again before the guard can be used.
        let raw = unsafe { MutexGuard::mutex(guard).raw() };
        // SAFETY: as above. Unlocked only once the caller stands in the queue, so a notification in between finds it.
        let notified = self.waiters.wait_then(|| true, || unsafe { raw.unlock() }, deadline);
        raw.lock();
        notified
    }

    /// Wakes whoever waits longest.
    #[inline]
    pub fn notify_one(&self) {
        // A relaxed look suffices for callers who changed the condition under the mutex: a waiter has joined before it
        // released the mutex.
        if self.waiters.has_waiters() {
            self.waiters.wake_one();
        }
    }

    /// Wakes everybody.
    pub fn notify_all(&self) {
        if self.waiters.has_waiters() {
            self.waiters.wake_all();
        }
    }
}
