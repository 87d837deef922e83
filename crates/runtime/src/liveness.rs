//! Whether a runtime still exists, for objects that may outlive it.
//!
//! A runtime belongs to its *parties*: its kernel threads, and the [`crate::Runtime`] itself. The last party to leave
//! closes and frees it: descriptors, queues, the table of tasks, workers. A worker that is blocked in the kernel when
//! its runtime is dropped is still a party, and leaves when it comes back.
//! Parties, and the tasks that run on their threads, use the scheduler as if it lived forever. Everything else
//! (handles, wakers and sockets in other threads or runtimes) asks here first, and holds the runtime open meanwhile. A
//! [`Liveness`] takes 64 bytes and is never freed (each runtime leaves one behind), so it can be asked at any time.

use heddle_sync::Closable;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// The value that a [`Liveness`] frees when the last party has left.
pub(crate) trait Owned: Send + Sync {
    /// Called when the last party leaves. The value is freed after the last use in progress.
    fn last_party_leaves(&self);
}

/// See the module.
pub(crate) struct Liveness<S: Owned + ?Sized> {
    sched: NonNull<S>,
    owned: Closable<OwnedPtr<S>>,
    parties: AtomicU32,
}

// SAFETY: a scheduler is shared by threads, and the other fields are atomic.
unsafe impl<S: Owned + ?Sized> Sync for Liveness<S> {}
// SAFETY: as above.
unsafe impl<S: Owned + ?Sized> Send for Liveness<S> {}

/// Frees the scheduler when dropped.
struct OwnedPtr<S: ?Sized>(NonNull<S>);

impl<S: ?Sized> Drop for OwnedPtr<S> {
    fn drop(&mut self) {
        // SAFETY: it came from a box (`Liveness::new`); all parties have left, and so has every other user
        // (`Closable`).
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<S: Owned + ?Sized> Liveness<S> {
    /// Returns the liveness of a runtime with one party, the caller.
    ///
    /// # Safety
    /// `sched` came from [`Box::into_raw`], and only the result frees it.
    pub(crate) unsafe fn new(sched: NonNull<S>) -> &'static Liveness<S> {
        let owned = Closable::new(OwnedPtr(sched));
        Box::leak(Box::new(Liveness { sched, owned, parties: AtomicU32::new(1) }))
    }

    /// Returns the scheduler. For its parties, and what runs on their threads.
    #[inline]
    pub(crate) fn scheduler(&self) -> &'static S
    where
        S: 'static,
    {
        // SAFETY: parties use the scheduler as if it lived forever.
        unsafe { self.sched.as_ref() }
    }

    /// Adds a party: a kernel thread that a party starts.
    pub(crate) fn enter(&self) {
        self.parties.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a party, which must no longer use the scheduler.
    pub(crate) fn leave(&self) {
        if self.parties.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: freed by `close` at the earliest, and this is the last use before it.
            unsafe { self.sched.as_ref() }.last_party_leaves();
            self.owned.close();
        }
    }

    /// Runs `f` on the scheduler if it still exists. `f` must not panic.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&'static S) -> R) -> Option<R>
    where
        S: 'static,
    {
        // SAFETY: not freed while it is held open.
        self.owned.with(|owned| f(unsafe { owned.0.as_ref() }))
    }
}
