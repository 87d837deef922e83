//! Sleeping, time limits and regular intervals.

use crate::sync::who;
use crate::task::Task;
use heddle_core::Ns;
use heddle_sys::clock;
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// The time since boot, by the clock that deadlines refer to.
pub fn now() -> Ns {
    clock::now()
}

/// Sleeps for `time`. In an ordinary thread, the thread sleeps.
pub fn sleep(time: Duration) {
    sleep_until(now() + Ns::from(time));
}

/// Sleeps until `at`.
pub fn sleep_until(at: Ns) {
    while now() < at {
        match Task::current() {
            Some(_) => who::park_until(at),
            None => std::thread::sleep((at - now()).into()),
        }
    }
}

thread_local! {
    /// The innermost time limit of the calling task, zero if none.
    static LIMIT: Cell<Ns> = const { Cell::new(Ns::ZERO) };
}

/// The deadline that waits of the caller have to respect.
pub(crate) fn limit() -> Option<Ns> {
    Some(LIMIT.get()).filter(|&at| at != Ns::ZERO)
}

/// A time limit passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit passed")
    }
}

impl std::error::Error for Elapsed {}

/// Runs `f` with a limit on how long its network operations may wait: once `time` has passed they fail with `TimedOut`.
/// Limits nest; the shorter one counts.
///
/// A thread cannot be stopped in the middle of a computation without leaving its locks held, so `f` is not cut off: it
/// sees the errors and ends itself.
///
/// # Errors
/// [`Elapsed`] if `f` took longer than `time`; its value is dropped.
pub fn timeout<R>(time: Duration, f: impl FnOnce() -> R) -> Result<R, Elapsed> {
    struct Restore(Ns);
    impl Drop for Restore {
        fn drop(&mut self) {
            LIMIT.set(self.0);
        }
    }
    let at = now() + Ns::from(time);
    let outer = LIMIT.get();
    let _restore = Restore(outer);
    LIMIT.set(if outer == Ns::ZERO { at } else { outer.min(at) });
    let value = f();
    if now() < at { Ok(value) } else { Err(Elapsed) }
}

/// Regular times; see [`interval`].
#[derive(Debug)]
pub struct Interval {
    next: Ns,
    period: Ns,
}

/// Ticks now and then every `period`. Ticks that were missed are skipped, so a slow user does not get a burst.
///
/// # Panics
/// If `period` is zero.
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval needs a period above zero");
    Interval { next: now(), period: period.into() }
}

impl Interval {
    /// Waits for the next tick; the time for which it was due.
    pub fn tick(&mut self) -> Ns {
        sleep_until(self.next);
        let due = self.next;
        let behind = (now() - due).0 / self.period.0;
        self.next = due + self.period * (behind + 1);
        due
    }
}
