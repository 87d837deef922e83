//! Doing something once.

use super::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs an initialiser once, whoever comes first. If it panics, the next caller tries again.
pub struct Once {
    done: AtomicBool,
    lock: Mutex<()>,
}

impl Default for Once {
    fn default() -> Self {
        Once::new()
    }
}

impl Once {
    /// Not done yet.
    pub const fn new() -> Once {
        Once { done: AtomicBool::new(false), lock: Mutex::new(()) }
    }

    /// Runs `f` unless it was done before; returns when it is done, by whomever.
    pub fn call_once(&self, f: impl FnOnce()) {
        if self.is_completed() {
            return;
        }
        let _guard = self.lock.lock();
        if !self.is_completed() {
            f();
            self.done.store(true, Ordering::Release);
        }
    }

    /// Whether it is done.
    pub fn is_completed(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}
