//! The ends of waits.

use heddle_core::Ns;
use heddle_sys::clock::now;
use std::time::{Duration, Instant};

/// Returns the end of a wait of at most `timeout`.
pub(crate) fn deadline_after(timeout: Duration) -> Option<Ns> {
    Some(now() + Ns::from(timeout))
}

/// Returns the end of a wait until `at` at most.
pub(crate) fn deadline_at(at: Instant) -> Option<Ns> {
    deadline_after(at.saturating_duration_since(Instant::now()))
}
