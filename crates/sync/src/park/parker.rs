//! How one thread parks and is unparked.

use super::FutexWord;
use crate::atomic::{Ordering, fence};
use crate::{YIELDS, relax};
use heddle_core::Ns;

const RUNNING: u32 = 0;
const PARKED: u32 = 1;
const POLLING: u32 = 2;
const NOTIFIED: u32 = 3;

/// The poll in which one thread at a time sleeps on behalf of all.
pub trait Driver {
    /// Sleeps in the poll until a source is ready, a timer is due, the bell rings, or `at_most` has passed, and wakes
    /// the tasks that waited for these events. Does not sleep unless `wanted`. Returns false at once if another thread
    /// polls. See [`PollLock::attend`](super::PollLock::attend).
    fn attend(&self, wanted: impl FnOnce() -> bool, at_most: Ns) -> bool;

    /// See [`PollLock::is_attended`](super::PollLock::is_attended).
    fn is_attended(&self) -> bool;

    /// Ends the sleep of the thread in the poll, now or when a thread next sleeps there.
    fn ring(&self);
}

/// The state of one thread that may park; see the diagram in the module docs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Parker(FutexWord);

impl Parker {
    /// Parks the calling thread in the futex until it is unparked, or for `at_most` ([`Ns::MAX`]: no limit). The caller
    /// has announced that it parks, and has checked for a reason not to.
    pub fn park(&self, at_most: Ns) {
        if self.0.replace(RUNNING, PARKED) {
            self.wait(at_most);
        }
    }

    /// Parks in the poll, or in the futex while another thread sleeps in the poll on behalf of all.
    pub fn park_polling(&self, driver: &impl Driver, at_most: Ns) {
        let mut polling = self.0.replace(RUNNING, POLLING);
        while polling && !driver.attend(|| self.0.load() == POLLING, at_most) {
            if driver.is_attended() {
                if self.0.replace(POLLING, PARKED) {
                    self.wait(at_most);
                }
                return;
            }
            // The holder of the poll only checks it and will not unpark us when something arrives: try again.
            relax(YIELDS);
            polling = self.0.load() == POLLING;
        }
    }

    /// Parks in the futex unless there is a `reason` not to, checked after the announcement.
    pub fn park_unless(&self, reason: impl FnOnce() -> bool) {
        self.0.swap(PARKED);
        fence(Ordering::SeqCst);
        if !reason() {
            self.wait(Ns::MAX);
        }
        self.reset();
    }

    /// Parks in the poll once, unless there is a `reason` not to or another thread polls: the caller checks its state
    /// and comes back.
    pub fn park_polling_unless(&self, driver: &impl Driver, reason: impl FnOnce() -> bool) {
        self.0.swap(POLLING);
        fence(Ordering::SeqCst);
        driver.attend(|| !reason() && self.0.load() == POLLING, Ns::MAX);
        self.reset();
    }

    fn wait(&self, at_most: Ns) {
        let timeout = Some(at_most).filter(|&time| time != Ns::MAX);
        while self.0.load() == PARKED {
            self.0.wait(PARKED, timeout);
            if timeout.is_some() {
                return;
            }
        }
    }

    /// Unparks the thread, or prevents it from parking once. Called by the thread that took it out of the idle set.
    pub fn unpark(&self, driver: &impl Driver) {
        match self.0.swap(NOTIFIED) {
            PARKED => self.0.wake_one(),
            POLLING => driver.ring(),
            _ => {}
        }
    }

    /// Unparks the thread if it is parked. The caller has already changed the state that the thread checks after its
    /// announcement.
    #[inline]
    pub fn unpark_if_parked(&self, driver: &impl Driver) {
        fence(Ordering::SeqCst);
        if matches!(self.0.load(), PARKED | POLLING) {
            self.unpark(driver);
        }
    }

    /// Called when the thread runs again. A later notification cuts its next parking short.
    pub fn reset(&self) {
        self.0.swap(RUNNING);
    }
}
