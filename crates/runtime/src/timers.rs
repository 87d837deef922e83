//! Tasks that sleep until a time.

use crate::task::TaskRef;
use heddle_core::Ns;
use heddle_sys::sync::SpinLock;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A sleeper's entry, to cancel it.
pub(crate) type Key = (Ns, u64);

/// All timers of a runtime, by deadline.
pub(crate) struct Timers {
    lock: SpinLock,
    entries: UnsafeCell<BTreeMap<Key, TaskRef>>,
    next: AtomicU64,
    sequence: AtomicU64,
}

// SAFETY: the entries are used under the lock only.
unsafe impl Sync for Timers {}

impl Default for Timers {
    fn default() -> Self {
        Timers {
            lock: SpinLock::new(),
            entries: UnsafeCell::default(),
            next: AtomicU64::new(Ns::MAX.0),
            sequence: AtomicU64::new(0),
        }
    }
}

impl Timers {
    /// Runs `f` on the entries. The caller cannot be preempted meanwhile.
    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<Key, TaskRef>) -> R) -> R {
        self.lock.lock();
        // SAFETY: the lock is held.
        let entries = unsafe { &mut *self.entries.get() };
        let result = f(entries);
        let next = entries.first_key_value().map_or(Ns::MAX, |((at, _), _)| *at);
        self.next.store(next.0, Ordering::Release);
        self.lock.unlock();
        result
    }

    /// Wakes `task` at `at`; with the key to cancel, and whether this is now the earliest.
    pub(crate) fn add(&self, at: Ns, task: TaskRef) -> (Key, bool) {
        let key = (at, self.sequence.fetch_add(1, Ordering::Relaxed));
        (
            key,
            self.with(|e| {
                e.insert(key, task).is_none() && e.first_key_value().is_some_and(|(k, _)| *k == key)
            }),
        )
    }

    /// Takes an entry back, if it has not fired.
    pub(crate) fn cancel(&self, key: Key) {
        self.with(|e| e.remove(&key));
    }

    /// The earliest deadline; [`Ns::MAX`] if there is none.
    #[inline]
    pub(crate) fn next(&self) -> Ns {
        Ns(self.next.load(Ordering::Acquire))
    }

    /// The first entry that is due.
    pub(crate) fn pop_due(&self, now: Ns) -> Option<TaskRef> {
        if self.next() > now {
            return None;
        }
        self.with(|e| match e.first_entry() {
            Some(first) if first.key().0 <= now => Some(first.remove()),
            _ => None,
        })
    }
}
