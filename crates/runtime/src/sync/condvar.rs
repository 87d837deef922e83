//! Waiting for a condition under a mutex.

use super::waiter::Limit;
use super::{MutexExt as _, MutexGuard, QueuedWaker, WaitQueue};
use crate::deadline::deadline_after;
use lock_api::RawMutex as _;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// A condition variable for [`super::Mutex`].
///
/// ```
/// use heddle_rt::sync::{Condvar, Mutex};
/// use std::time::Duration;
///
/// let (ready, changed) = (Mutex::new(false), Condvar::new());
/// let mut guard = ready.lock();
/// let result = changed.wait_timeout_while(&mut guard, Duration::from_millis(1), |ready| !*ready);
/// assert!(result.timed_out());
/// ```
#[derive(Default)]
pub struct Condvar {
    waiters: WaitQueue,
}

/// Whether a wait on a [`Condvar`] ended because its time limit passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True if the time limit passed, and not because of a notification.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Condvar {
        Condvar { waiters: WaitQueue::new() }
    }

    /// Releases the mutex, waits for a notification, takes the mutex again. There are no spurious wake-ups, but the
    /// condition may have changed again: use [`Condvar::wait_while`] or a loop.
    #[inline]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_limited(guard, None);
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

    /// Like [`Condvar::wait`] for at most `timeout`; false if that passed. [`Condvar::wait_timeout`] is the same with
    /// the result in std's form.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        self.wait_limited(guard, deadline_after(timeout))
    }

    /// Like [`Condvar::wait`] for at most `timeout`.
    pub fn wait_timeout<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult(!self.wait_for(guard, timeout))
    }

    /// Waits while `condition` holds, for at most `timeout` in all. The result says that the time limit passed only if
    /// `condition` still holds.
    pub fn wait_timeout_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult(!self.wait_while_limited(guard, condition, deadline_after(timeout)))
    }

    /// Waits while `condition` holds, within `limit`; false if `condition` still held at its end.
    pub(super) fn wait_while_limited<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        limit: impl Limit,
    ) -> bool {
        let mut in_time = true;
        while condition(guard) {
            if !in_time {
                return false;
            }
            in_time = self.wait_limited(guard, limit);
        }
        true
    }

    #[inline]
    pub(crate) fn wait_limited<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        limit: impl Limit,
    ) -> bool {
        // SAFETY: the guard proves that the mutex is held; it is held again before the guard can be used.
        let raw = unsafe { MutexGuard::mutex(guard).raw() };
        // SAFETY: as above. Unlocked only once the caller stands in the queue, so a notification in between finds it.
        let notified = self.waiters.wait_then(|| true, || unsafe { raw.unlock() }, limit);
        raw.lock();
        notified
    }

    /// Releases the mutex, waits for a notification, takes the mutex again: [`Condvar::wait`] as a future. The mutex is
    /// released in the first poll that waits. If the future is dropped, the mutex is free, and a notification that it
    /// has got and not returned for is passed on: it is cancel-safe.
    ///
    /// ```
    /// use heddle_rt::sync::{Condvar, Mutex, MutexExt as _};
    /// use std::sync::Arc;
    ///
    /// let shared = Arc::new((Mutex::new(false), Condvar::new()));
    /// let theirs = shared.clone();
    /// heddle_rt::spawn(move || {
    ///     *theirs.0.lock() = true;
    ///     theirs.1.notify_one();
    /// });
    /// heddle_rt::block_on(async {
    ///     let mut is_ready = shared.0.lock_async().await;
    ///     while !*is_ready {
    ///         is_ready = shared.1.wait_async(is_ready).await;
    ///     }
    /// });
    /// ```
    #[allow(clippy::await_holding_lock, reason = "it is dropped before the first await ends")]
    pub async fn wait_async<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = MutexGuard::mutex(&guard);
        let mut guard = Some(guard);
        let mut notified = Notified { queue: &self.waiters, passes_on: false };
        let mut wait = pin!(QueuedWaker::new(&self.waiters));
        let wait = poll_fn(|cx| {
            if guard.is_none() {
                return wait.as_mut().poll_woken(cx);
            }
            wait.as_mut().arm(cx);
            wait.as_mut().join();
            // Only now, so a notification in between finds the waiter.
            guard = None;
            Poll::Pending
        });
        notified.passes_on = wait.await;
        let guard = mutex.lock_async().await;
        notified.passes_on = false;
        guard
    }

    /// Where the waiters are.
    pub(super) fn waiters(&self) -> &WaitQueue {
        &self.waiters
    }

    /// Wakes the longest waiter.
    #[inline]
    pub fn notify_one(&self) {
        // A relaxed load suffices for callers that changed the condition under the mutex: a waiter has joined before it
        // released the mutex.
        if self.waiters.has_waiters() {
            self.waiters.wake_one();
        }
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        if self.waiters.has_waiters() {
            self.waiters.wake_all();
        }
    }
}

/// A notification that a future has got and not returned for: passed on to the next waiter if it is dropped.
struct Notified<'a> {
    queue: &'a WaitQueue,
    passes_on: bool,
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        if self.passes_on {
            self.queue.wake_one();
        }
    }
}
