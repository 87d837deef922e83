//! Atomics, and the small protocols for sleeping and waking used by the runtime, the event queue and late binding.
//!
//! # Invariants
//!
//! - **I1** Every protocol here is checked by loom on the code itself: all atomics come from [`atomic`], which becomes
//!   loom's memory model under `--cfg loom`.
//! - **I2** Nothing here allocates, and nothing keeps state in thread-local variables.

mod claim;
mod closable;
mod deferred;
mod end;
mod gate;
mod idle;
mod inbox;
mod lock;
mod lot;
pub mod park;
mod poll;
mod spin;
mod spin_cell;
#[cfg(all(test, loom))]
mod uintr_model;
mod wait_list;
#[cfg(all(test, loom))]
mod wait_model;
mod wake;
mod waker_slot;
mod words;

pub use claim::ClaimWord;
pub use closable::Closable;
pub use deferred::Deferred;
pub use end::{EndWord, Ended};
pub use gate::Gate;
pub use idle::IdleSet;
pub use inbox::{Inbox, InboxNode};
pub use lot::{Lot, LotLayout, LotNode};
pub use poll::{HandleLeft, PollEnded, PollWord};
pub use spin::SpinLock;
pub use spin_cell::{SpinCell, SpinGuard};
pub use wait_list::{WaitList, WaitNode};
pub use wake::WakeWord;
pub use waker_slot::WakerSlot;
pub use words::{LockWord, ReadyWord, RwWord};

/// The atomics of this build: `core`'s, or loom's under `--cfg loom`.
pub mod atomic {
    #[cfg(not(loom))]
    pub use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    #[cfg(loom)]
    pub use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

/// The round from which [`relax`] yields.
pub(crate) const YIELDS: u32 = 100;

/// Spin-loop hint for the processor (or for loom); yields to the kernel after 100 rounds, and sleeps after 200: the
/// holder of a lock may have a lower real-time priority than the caller, on the same CPU.
pub(crate) fn relax(round: u32) {
    #[cfg(loom)]
    {
        let _ = round;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if round < YIELDS {
        core::hint::spin_loop();
    } else if round < 2 * YIELDS {
        // The lock holder may be waiting for this very CPU, which is common on two cores.
        std::thread::yield_now();
    } else {
        heddle_sys::thread::sleep(heddle_core::Ns::from_us(20));
    }
}
