//! Whether a runtime still exists, for those who may outlive it.
//!
//! A runtime belongs to its *parties*: its kernel threads, and the [`crate::Runtime`] itself. The last one to leave closes it, and
//! it is freed: descriptors, queues, table of tasks, workers. A worker that sits in the kernel when its runtime is dropped is
//! a party still, and leaves when it comes back.
//!
//! Parties, and the tasks that run on their threads, use the scheduler as if it lived for ever. Everybody else (handles, wakers
//! and sockets in other threads or runtimes) asks here first, and holds it open meanwhile. What they ask is 64 bytes, of
//! which each runtime leaves one behind: they are never freed, so the question may come at any time.

use crate::sched::Scheduler;
use crate::task::Task;
use crate::worker::Worker;
use heddle_sync::Closable;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// See the module.
pub(crate) struct Liveness {
    sched: NonNull<dyn Scheduler>,
    owned: Closable<Owned>,
    parties: AtomicU32,
}

// SAFETY: a scheduler is shared by threads, and what is here beside it is atomic.
unsafe impl Sync for Liveness {}
// SAFETY: as above.
unsafe impl Send for Liveness {}

/// Frees the scheduler when dropped.
struct Owned(NonNull<dyn Scheduler>);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it came from a box; all parties have left, and whoever else was there has gone (`Closable`).
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Liveness {
    /// A runtime of one party, the caller.
    pub(crate) fn new(sched: Box<dyn Scheduler>) -> &'static Liveness {
        // SAFETY: a box is not null.
        let sched = unsafe { NonNull::new_unchecked(Box::into_raw(sched)) };
        let owned = Closable::new(Owned(sched));
        Box::leak(Box::new(Liveness { sched, owned, parties: AtomicU32::new(1) }))
    }

    /// The scheduler.
    ///
    /// # Safety
    /// The caller uses it only while it is a party, or in a task of the runtime, which runs on the thread of one.
    pub(crate) unsafe fn sched(&self) -> &'static dyn Scheduler {
        // SAFETY: not freed before the last party has left.
        unsafe { self.sched.as_ref() }
    }

    /// One more party: a kernel thread that a party starts.
    pub(crate) fn enter(&self) {
        self.parties.fetch_add(1, Ordering::Relaxed);
    }

    /// A party leaves, and uses the scheduler no more.
    pub(crate) fn leave(&self) {
        if self.parties.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the last party, and this is the last use.
            let sched = unsafe { self.sched() };
            sched.refuse_lost_tasks();
            sched.abandon_tasks();
            self.owned.close();
        }
    }

    /// Runs `f` on the scheduler, if it still exists. `f` does not panic.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&'static dyn Scheduler) -> R) -> Option<R> {
        // SAFETY: what is open is not freed.
        self.owned.with(|owned| f(unsafe { owned.0.as_ref() }))
    }
}

/// Runs `f` on the scheduler of `task`, which may belong to any runtime, if that still exists. Preemption is off.
#[inline]
pub(crate) fn reach<R>(task: &Task, f: impl FnOnce(&'static dyn Scheduler) -> R) -> Option<R> {
    let home = task.liveness()?;
    // The threads of the task's own runtime are parties. Most calls come from there.
    if Worker::here().is_some_and(|worker| ptr::eq(worker.liveness, home)) {
        return Some(f(task.sched()));
    }
    home.with(f)
}
