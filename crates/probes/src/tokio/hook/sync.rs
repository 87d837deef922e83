//! Added by Heddle: tokio's internal mutex, whose holder is not preempted: the next that wants it would have to wait
//! for the holder's next turn.
//!
//! While it waits for a condition a thread holds no mutex, and may be preempted.

#![allow(dead_code)]

use crate::heddle::NoPreempt;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::LockResult;
use std::time::Duration;

use super::sync::WaitTimeoutResult;

#[cfg(all(feature = "parking_lot", not(miri)))]
use super::parking_lot as inner;

#[cfg(not(all(feature = "parking_lot", not(miri))))]
mod inner {
    pub(super) use super::super::mutex::Mutex;
    pub(super) use std::sync::{Condvar, MutexGuard};
}

#[derive(Debug)]
pub(crate) struct Mutex<T: ?Sized>(inner::Mutex<T>);

#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T: ?Sized> {
    // Dropped first: the section ends when the mutex is free.
    guard: inner::MutexGuard<'a, T>,
    section: NoPreempt,
}

#[derive(Debug)]
pub(crate) struct Condvar(inner::Condvar);

impl<T> Mutex<T> {
    #[inline]
    pub(crate) fn new(t: T) -> Mutex<T> {
        Mutex(inner::Mutex::new(t))
    }

    #[inline]
    pub(crate) const fn const_new(t: T) -> Mutex<T> {
        Mutex(inner::Mutex::const_new(t))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let section = NoPreempt::begin();
        MutexGuard { guard: self.0.lock(), section }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let section = NoPreempt::begin();
        self.0.try_lock().map(|guard| MutexGuard { guard, section })
    }

    #[cfg(all(feature = "parking_lot", not(miri)))]
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl Condvar {
    #[inline]
    pub(crate) fn new() -> Condvar {
        Condvar(inner::Condvar::new())
    }

    #[inline]
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    #[inline]
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let MutexGuard { guard, section } = guard;
        drop(section);
        let guard = self.0.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner());
        Ok(MutexGuard { guard, section: NoPreempt::begin() })
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let MutexGuard { guard, section } = guard;
        drop(section);
        let (guard, result) =
            self.0.wait_timeout(guard, timeout).unwrap_or_else(|poisoned| poisoned.into_inner());
        Ok((MutexGuard { guard, section: NoPreempt::begin() }, result))
    }
}
