//! Waits that end when a token is cancelled.

use super::{CancellationToken, Cancelled};
use crate::select;
use crate::sync::select::{SelectRecv, Selection};
use crate::sync::waiter::{self, Limit};
use crate::sync::{
    Condvar, Mutex, MutexGuard, Permit, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore,
};
use std::sync::Arc;
use std::sync::mpsc::RecvError;

/// While this lives, cancelling the token wakes the caller that made it.
pub(crate) struct Registration<'a> {
    token: &'a CancellationToken,
    selection: Arc<Selection>,
}

impl<'a> Registration<'a> {
    pub(crate) fn new(token: &'a CancellationToken) -> Registration<'a> {
        let selection = Selection::of_caller();
        token.register(&selection, 0);
        Registration { token, selection }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.token.unregister(&self.selection);
    }
}

/// Until the token is cancelled. The flag is set before the registered party is woken, so a wake-up before the look
/// at the flag is not missed, and one after it ends the park.
impl Limit for &Registration<'_> {
    fn park(self) -> bool {
        let waits = !self.token.is_cancelled();
        if waits {
            waiter::park();
        }
        waits
    }
}

impl CancellationToken {
    /// Receives from a channel.
    ///
    /// # Errors
    /// [`Cancelled`] if the token is cancelled and there is nothing to receive. The inner error is that of the channel.
    pub fn recv<R: SelectRecv>(
        &self,
        receiver: &R,
    ) -> Result<Result<R::Item, RecvError>, Cancelled> {
        if let Some(result) = receiver.attempt() {
            return Ok(result);
        }
        select! {
            recv(receiver) -> result => Ok(result),
            cancelled(self) => Err(Cancelled),
        }
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// [`Cancelled`] if the token is cancelled before the lock is free.
    pub fn lock<'a, T: ?Sized>(&self, mutex: &'a Mutex<T>) -> Result<MutexGuard<'a, T>, Cancelled> {
        if let Some(guard) = mutex.try_lock() {
            return Ok(guard);
        }
        // SAFETY: the lock is taken through this reference and not released.
        let taken = unsafe { mutex.raw() }.lock_limited(&Registration::new(self));
        // SAFETY: the lock was taken, and no guard was made of that.
        taken.then(|| unsafe { mutex.make_guard_unchecked() }).ok_or(Cancelled)
    }

    /// Takes the lock for reading.
    ///
    /// # Errors
    /// [`Cancelled`] if the token is cancelled before readers are admitted.
    pub fn read<'a, T: ?Sized>(
        &self,
        lock: &'a RwLock<T>,
    ) -> Result<RwLockReadGuard<'a, T>, Cancelled> {
        if let Some(guard) = lock.try_read() {
            return Ok(guard);
        }
        // SAFETY: the lock is taken through this reference and not released.
        let taken = unsafe { lock.raw() }.read_limited(&Registration::new(self));
        // SAFETY: the lock was taken for reading, and no guard was made of that.
        taken.then(|| unsafe { lock.make_read_guard_unchecked() }).ok_or(Cancelled)
    }

    /// Takes the lock for writing.
    ///
    /// # Errors
    /// [`Cancelled`] if the token is cancelled before the lock is free.
    pub fn write<'a, T: ?Sized>(
        &self,
        lock: &'a RwLock<T>,
    ) -> Result<RwLockWriteGuard<'a, T>, Cancelled> {
        if let Some(guard) = lock.try_write() {
            return Ok(guard);
        }
        // SAFETY: the lock is taken through this reference and not released.
        let taken = unsafe { lock.raw() }.write_limited(&Registration::new(self));
        // SAFETY: the lock was taken for writing, and no guard was made of that.
        taken.then(|| unsafe { lock.make_write_guard_unchecked() }).ok_or(Cancelled)
    }

    /// Takes a permit.
    ///
    /// # Errors
    /// [`Cancelled`] if the token is cancelled before there is one.
    pub fn acquire<'a>(&self, semaphore: &'a Semaphore) -> Result<Permit<'a>, Cancelled> {
        let permit = semaphore.try_acquire();
        permit.or_else(|| semaphore.acquire_limited(&Registration::new(self))).ok_or(Cancelled)
    }

    /// Waits on `condvar` while `condition` holds.
    ///
    /// # Errors
    /// [`Cancelled`] if the token is cancelled and `condition` still holds. The mutex is held in either case.
    pub fn wait_while<T: ?Sized>(
        &self,
        condvar: &Condvar,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> Result<(), Cancelled> {
        let registration = Registration::new(self);
        let is_over = condvar.wait_while_limited(guard, condition, &registration);
        is_over.then_some(()).ok_or(Cancelled)
    }
}
