//! Counted permits.

use super::WaitQueue;
use super::waiter::Limit;
use crate::deadline::{deadline_after, deadline_at};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A number of permits; [`Semaphore::acquire`] takes one and waits while there is none.
///
/// ```
/// use heddle_rt::sync::Semaphore;
/// use std::time::Duration;
///
/// let semaphore = Semaphore::new(1);
/// let permit = semaphore.acquire();
/// assert!(semaphore.try_acquire_for(Duration::from_millis(1)).is_none());
/// drop(permit);
/// assert!(semaphore.try_acquire().is_some());
/// ```
pub struct Semaphore {
    permits: AtomicUsize,
    waiters: WaitQueue,
}

/// A permit, returned when dropped.
pub struct Permit<'a>(&'a Semaphore);

impl Semaphore {
    /// A semaphore with `permits` permits.
    pub const fn new(permits: usize) -> Semaphore {
        Semaphore { permits: AtomicUsize::new(permits), waiters: WaitQueue::new() }
    }

    /// Takes a permit, waiting for one if need be.
    pub fn acquire(&self) -> Permit<'_> {
        self.acquire_limited(None).expect("a wait without a limit ends with a permit")
    }

    /// Takes a permit if there is one.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        let take = |n: usize| n.checked_sub(1);
        self.permits
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .ok()
            .map(|_| Permit(self))
    }

    /// Takes a permit, waiting for at most `timeout`; `None` if there was none within that time.
    pub fn try_acquire_for(&self, timeout: Duration) -> Option<Permit<'_>> {
        self.acquire_limited(deadline_after(timeout))
    }

    /// Takes a permit, waiting until `deadline` at most; `None` if there was none by then.
    pub fn try_acquire_until(&self, deadline: Instant) -> Option<Permit<'_>> {
        self.acquire_limited(deadline_at(deadline))
    }

    /// A caller that was woken and finds no permit leaves none behind: the one that it was woken for was taken by
    /// another caller, whose release wakes the next waiter.
    pub(super) fn acquire_limited(&self, limit: impl Limit) -> Option<Permit<'_>> {
        let mut in_time = true;
        loop {
            let permit = self.try_acquire();
            if permit.is_some() || !in_time {
                return permit;
            }
            let is_empty = || self.permits.load(Ordering::SeqCst) == 0;
            in_time = self.waiters.wait_while(is_empty, limit);
        }
    }

    /// Takes a permit; a future that waits for one if need be. It is cancel-safe.
    ///
    /// ```
    /// use heddle_rt::sync::Semaphore;
    ///
    /// let semaphore = Semaphore::new(1);
    /// let permit = heddle_rt::block_on(semaphore.acquire_async());
    /// assert_eq!(semaphore.available(), 0);
    /// # drop(permit);
    /// ```
    pub async fn acquire_async(&self) -> Permit<'_> {
        let is_empty = || self.permits.load(Ordering::SeqCst) == 0;
        self.waiters.until(|| self.try_acquire(), is_empty).await
    }

    /// Adds `n` permits.
    pub fn release(&self, n: usize) {
        self.permits.fetch_add(n, Ordering::SeqCst);
        for _ in 0..n {
            if !self.waiters.wake_one() {
                break;
            }
        }
    }

    /// The number of permits at this moment.
    pub fn available(&self) -> usize {
        self.permits.load(Ordering::Relaxed)
    }
}

impl Permit<'_> {
    /// Keeps the permit for good.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.release(1);
    }
}
