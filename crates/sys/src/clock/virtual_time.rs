//! The clock's simulated twin: one counter for the whole process, one tick per nanosecond.

use core::sync::atomic::{AtomicU64, Ordering};
use heddle_core::Ns;

static NOW: AtomicU64 = AtomicU64::new(0);

/// Returns the virtual time.
pub fn now() -> Ns {
    Ns(ticks())
}

/// Returns the virtual time.
#[inline]
pub fn ticks() -> u64 {
    NOW.load(Ordering::SeqCst)
}

/// Virtual time passes alike everywhere.
pub fn is_steady() -> bool {
    true
}

/// Advances time to `at`; does nothing if that has passed.
pub fn advance_to(at: Ns) {
    NOW.fetch_max(at.0, Ordering::SeqCst);
}

/// Restarts time at zero. For the start of a run, while no other is in progress.
pub fn restart() {
    NOW.store(0, Ordering::SeqCst);
}

/// A tick is a nanosecond.
pub fn ns_to_ticks(ns: Ns) -> u64 {
    ns.0
}

/// A tick is a nanosecond.
pub fn ticks_to_ns(ticks: u64) -> Ns {
    Ns(ticks)
}
