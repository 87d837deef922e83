//! Counted permits.

use super::WaitQueue;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of permits; [`Semaphore::acquire`] takes one and waits while there is none.
pub struct Semaphore {
    permits: AtomicUsize,
    waiters: WaitQueue,
}

/// A permit, given back when dropped.
pub struct Permit<'a>(&'a Semaphore);

impl Semaphore {
    /// A semaphore with `permits` permits.
    pub const fn new(permits: usize) -> Semaphore {
        Semaphore { permits: AtomicUsize::new(permits), waiters: WaitQueue::new() }
    }

    /// Takes a permit, waiting for one if need be.
    pub fn acquire(&self) -> Permit<'_> {
        loop {
            if let Some(permit) = self.try_acquire() {
                return permit;
            }
            self.waiters.wait_while(|| self.permits.load(Ordering::SeqCst) == 0, None);
        }
    }

    /// Takes a permit if there is one.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        let take = |n: usize| n.checked_sub(1);
        self.permits
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .ok()
            .map(|_| Permit(self))
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

    /// How many permits there are now.
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
