//! The clock's simulated twin: one counter for the whole process, a tick a nanosecond.

use core::sync::atomic::{AtomicU64, Ordering};
use heddle_core::Ns;

static NOW: AtomicU64 = AtomicU64::new(0);

/// The virtual time.
pub fn now() -> Ns {
    Ns(ticks())
}

/// The virtual time.
#[inline]
pub fn ticks() -> u64 {
    NOW.load(Ordering::SeqCst)
}

/// Lets time pass until `at`; nothing happens if that is past.
pub fn advance_to(at: Ns) {
    NOW.fetch_max(at.0, Ordering::SeqCst);
}

/// Restarts time at zero. For the start of a run, while no other goes on.
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
