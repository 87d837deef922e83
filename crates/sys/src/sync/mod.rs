//! Atomics and the small protocols that the runtime stands on, each checked by loom.

mod claim;
mod closable;
mod end;
mod gate;
mod idle;
mod inbox;
pub mod park;
mod spin;
mod wait_list;
#[cfg(all(test, loom))]
mod wait_model;
mod wake;
mod words;

pub use claim::ClaimWord;
pub use closable::Closable;
pub use end::{EndWord, Ended};
pub use gate::Gate;
pub use idle::IdleSet;
pub use inbox::{Inbox, InboxNode};
pub use spin::SpinLock;
pub use wait_list::{WaitList, WaitNode};
pub use wake::WakeWord;
pub use words::{LockWord, ReadyWord, RwWord};

/// The atomics of the build: `core`'s, or loom's under `--cfg loom`.
pub mod atomic {
    #[cfg(not(loom))]
    pub use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    #[cfg(loom)]
    pub use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

/// Told to the processor (or to loom) inside a loop that waits for another thread.
pub(crate) fn relax(round: u32) {
    #[cfg(loom)]
    {
        let _ = round;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if round < 100 {
        core::hint::spin_loop();
    } else {
        // Whoever holds the lock may have lost its CPU to us: let it run. On two cores this happens.
        // SAFETY: the call has no arguments and no effect on memory.
        unsafe { libc::sched_yield() };
    }
}
