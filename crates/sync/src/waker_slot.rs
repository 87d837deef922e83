//! A slot for the one party that waits for something without a node of its own; a later party takes its slot over.
//!
//! The flag that says whether the slot is set is loaded without order, so that a waker that finds it empty pays one
//! load. The two sides must therefore share a lock: the waiting party sets the slot, takes the lock and looks whether
//! it must still wait; the waker changes what the party waits for, takes the lock (or the party took it after that) and
//! then looks at the slot. Whichever takes the lock first, the other sees what it did before
//! ([`WaitList::look`](super::WaitList::look)).

use super::atomic::{AtomicU32, Ordering};
use super::lock::Lock;
use core::cell::UnsafeCell;

/// See the module docs. `W` says whom to wake. Callers must not be preempted by the runtime while they are in here.
pub struct WakerSlot<W> {
    lock: Lock,
    is_set: AtomicU32,
    who: UnsafeCell<Option<W>>,
}

// SAFETY: the value is used under the lock only, and leaves it by moves.
unsafe impl<W: Send> Sync for WakerSlot<W> {}
// SAFETY: as above.
unsafe impl<W: Send> Send for WakerSlot<W> {}

impl<W> Default for WakerSlot<W> {
    fn default() -> Self {
        WakerSlot::new()
    }
}

impl<W> WakerSlot<W> {
    /// Returns an empty slot.
    #[cfg(not(loom))]
    pub const fn new() -> WakerSlot<W> {
        WakerSlot { lock: Lock::new(), is_set: AtomicU32::new(0), who: UnsafeCell::new(None) }
    }

    /// Returns an empty slot.
    #[cfg(loom)]
    pub fn new() -> WakerSlot<W> {
        WakerSlot { lock: Lock::default(), is_set: AtomicU32::new(0), who: UnsafeCell::new(None) }
    }

    /// Returns whether a party is in the slot; see the module docs.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the slot holds a party that passes `test`, which only compares.
    pub fn holds(&self, test: impl FnOnce(&W) -> bool) -> bool {
        self.is_set() && self.with(|who| who.as_ref().is_some_and(test))
    }

    /// Puts a party into the slot and returns the one before, which is not woken.
    pub fn put(&self, who: W) -> Option<W> {
        self.with(|slot| {
            self.is_set.store(1, Ordering::Relaxed);
            slot.replace(who)
        })
    }

    /// Takes the party out of the slot; the caller wakes it.
    #[inline]
    pub fn take(&self) -> Option<W> {
        if self.is_set() { self.take_set() } else { None }
    }

    fn take_set(&self) -> Option<W> {
        self.with(|slot| {
            self.is_set.store(0, Ordering::Relaxed);
            slot.take()
        })
    }

    fn with<R>(&self, f: impl FnOnce(&mut Option<W>) -> R) -> R {
        // SAFETY: the lock is held.
        self.lock.with(|| f(unsafe { &mut *self.who.get() }))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_latest_party_is_in_the_slot() {
        let slot = WakerSlot::new();
        assert_eq!((slot.take(), slot.is_set()), (None, false));
        assert_eq!(slot.put(1), None);
        assert_eq!(slot.put(2), Some(1));
        assert!(slot.is_set() && slot.holds(|&who| who == 2) && !slot.holds(|&who| who == 1));
        assert_eq!((slot.take(), slot.take()), (Some(2), None));
        assert!(!slot.is_set() && !slot.holds(|_| true));
    }
}
