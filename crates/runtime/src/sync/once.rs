//! Running an initialiser once.

use super::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs an initialiser once, for the first caller. If it panics, the next caller tries again.
///
/// ```
/// use heddle_rt::sync::Once;
///
/// let (once, mut calls) = (Once::new(), 0);
/// once.call_once(|| calls += 1);
/// once.call_once(|| calls += 1);
/// assert!(once.is_completed());
/// assert_eq!(calls, 1);
/// ```
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
    /// One whose initialiser has not run.
    pub const fn new() -> Once {
        Once { done: AtomicBool::new(false), lock: Mutex::new(()) }
    }

    /// Runs `f` unless an initialiser has completed; if another caller is running one, waits for its end.
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

    /// Whether an initialiser has completed.
    pub fn is_completed(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}
