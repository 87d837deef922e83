//! The open connections. A connection's number is the token of its events.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// A table of a fixed size.
pub(super) struct Table<T> {
    places: Box<[Mutex<Option<T>>]>,
    free: Mutex<Vec<u32>>,
    emptied: Condvar,
}

impl<T> Table<T> {
    pub(super) fn new(size: usize) -> Table<T> {
        let places = (0..size).map(|_| Mutex::new(None)).collect();
        let free = Mutex::new((0..size as u32).rev().collect());
        Table { places, free, emptied: Condvar::new() }
    }

    /// Takes a free slot and returns its number; the caller owns it until [`Table::give_back`].
    pub(super) fn take(&self) -> Option<u32> {
        self.free().pop()
    }

    /// Frees a slot, which the caller has emptied.
    pub(super) fn give_back(&self, number: u32) {
        let mut free = self.free();
        free.push(number);
        if free.len() == self.places.len() {
            self.emptied.notify_all();
        }
    }

    /// Locks a slot. The thread that handles the connection's event never waits here; others may.
    pub(super) fn lock(&self, number: u32) -> MutexGuard<'_, Option<T>> {
        // After a panic in a conversation the connection is closed; its slot can be used again.
        self.places[number as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn for_each(&self, mut what: impl FnMut(&T)) {
        for number in 0..self.places.len() as u32 {
            if let Some(one) = &*self.lock(number) {
                what(one);
            }
        }
    }

    /// Calls `f` with each connection that no thread handles right now.
    pub(super) fn for_each_at_rest(&self, mut what: impl FnMut(&mut T)) {
        for place in &self.places {
            let place = match place.try_lock() {
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
                Ok(place) => Ok::<_, ()>(place),
            };
            if let Ok(mut place) = place
                && let Some(one) = &mut *place
            {
                what(one);
            }
        }
    }

    /// Waits until no connection is left; returns false after `patience`.
    pub(super) fn wait_empty(&self, patience: Duration) -> bool {
        let is_used = |free: &mut Vec<u32>| free.len() < self.places.len();
        let (_free, waited) = self
            .emptied
            .wait_timeout_while(self.free(), patience, is_used)
            .unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out()
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
