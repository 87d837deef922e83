//! A word that threads sleep on: a futex, or loom's twin of one.

use crate::atomic::{AtomicU32, Ordering};
use heddle_core::Ns;

/// An atomic word with a queue of sleepers.
#[derive(Debug, Default)]
pub struct FutexWord {
    value: AtomicU32,
    #[cfg(loom)]
    twin: twin::Queue,
}

impl FutexWord {
    /// See [`AtomicU32::load`]: acquires.
    #[inline]
    pub fn load(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Stores `value`: acquires what the previous writer did and releases what the caller did.
    #[inline]
    pub fn swap(&self, value: u32) -> u32 {
        self.value.swap(value, Ordering::AcqRel)
    }

    /// Replaces `from` by `to`. Returns false if the word held something else.
    #[inline]
    pub fn replace(&self, from: u32, to: u32) -> bool {
        self.value.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Sleeps while the word is `expected`, for at most `timeout`. May return early for no reason.
    #[cfg(not(loom))]
    pub fn wait(&self, expected: u32, timeout: Option<Ns>) {
        heddle_sys::futex::wait(&self.value, expected, timeout);
    }

    /// Wakes one sleeper.
    #[cfg(not(loom))]
    pub fn wake_one(&self) {
        heddle_sys::futex::wake(&self.value, 1);
    }

    /// Sleeps while the word is `expected`. A timeout expires at once, so with one it does not sleep.
    #[cfg(loom)]
    pub fn wait(&self, expected: u32, timeout: Option<Ns>) {
        self.twin.wait(|| timeout.is_none() && self.load() == expected);
    }

    /// Wakes one sleeper.
    #[cfg(loom)]
    pub fn wake_one(&self) {
        self.twin.wake_one();
    }
}

/// The kernel compares and queues under its own lock; so does this.
#[cfg(loom)]
mod twin {
    use loom::sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(super) struct Queue {
        lock: Mutex<()>,
        sleepers: Condvar,
    }

    impl Queue {
        pub(super) fn wait(&self, asleep: impl FnOnce() -> bool) {
            let guard = self.lock.lock().unwrap();
            if asleep() {
                drop(self.sleepers.wait(guard).unwrap());
            }
        }

        pub(super) fn wake_one(&self) {
            let _guard = self.lock.lock().unwrap();
            self.sleepers.notify_one();
        }
    }
}
