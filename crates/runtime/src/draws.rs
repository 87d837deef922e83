//! The source of a policy's random numbers.
//!
//! Each worker has its own generator, and each call from outside gets a new one. In virtual time (`--cfg virtual_time`)
//! all draw from one, as in the simulator.

use heddle_core::Rng;
#[cfg(not(virtual_time))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds for calls from outside.
#[cfg(not(virtual_time))]
#[derive(Default)]
pub(crate) struct Draws(AtomicU64);

#[cfg(not(virtual_time))]
impl Draws {
    /// Runs `f` with the generator of the calling worker, or with a new one.
    #[inline(always)]
    pub(crate) fn with<R>(&self, worker: Option<&Rng>, f: impl FnOnce(&Rng) -> R) -> R {
        match worker {
            Some(own) => f(own),
            None => f(&Rng::new(self.0.fetch_add(1, Ordering::Relaxed))),
        }
    }
}

/// The one generator.
#[cfg(virtual_time)]
pub(crate) struct Draws(Rng);

// SAFETY: in virtual time one thread acts at a time, from the first task on; before that no policy draws.
#[cfg(virtual_time)]
unsafe impl Sync for Draws {}

#[cfg(virtual_time)]
impl Default for Draws {
    /// With the seed that scenarios have by default.
    fn default() -> Draws {
        Draws(Rng::new(1))
    }
}

#[cfg(virtual_time)]
impl Draws {
    /// Runs `f` with the generator.
    pub(crate) fn with<R>(&self, _: Option<&Rng>, f: impl FnOnce(&Rng) -> R) -> R {
        f(&self.0)
    }
}
