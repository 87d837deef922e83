//! Sleeping, time limits and regular intervals.

use crate::sync::select::{SelectRecv, Selection};
use crate::sync::{Cancelled, cut_off, is_cut, waiter};
use crate::task::Task;
use heddle_core::Ns;
use heddle_sys::clock;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvError;
use std::time::Duration;

/// Returns the time since boot, by the clock that deadlines refer to.
pub fn now() -> Ns {
    clock::now()
}

/// Sleeps for `time`. In an ordinary thread, the thread sleeps. A sleep that can be ended early is
/// [`CancellationToken::sleep`](crate::sync::CancellationToken::sleep).
pub fn sleep(time: Duration) {
    sleep_until(now() + Ns::from(time));
}

/// Sleeps until `at`.
pub fn sleep_until(at: Ns) {
    while now() < at {
        match Task::current() {
            Some(_) => waiter::park_until(at),
            None => std::thread::sleep((at - now()).into()),
        }
    }
}

/// The innermost time limit of a task.
#[derive(Clone, Copy)]
struct Limit {
    /// When it ends; [`Ns::MAX`] if there is none.
    at: Ns,
    /// It has cut off an operation. Later operations under it fail at once, so none succeeds whose result [`timeout`]
    /// would drop.
    cut: bool,
}

thread_local! {
    static LIMIT: Cell<Limit> = const { Cell::new(Limit { at: Ns::MAX, cut: false }) };
}

/// Runs `operation` with the time until which it may wait: the earlier one of `own` and the task's limit. If the
/// operation returns `None`, it was not done by then, or it waited with [`crate::sync::Cancellable`] and was cancelled.
/// That is an error of the kind `late` if the time was `own`, `TimedOut` if it was the limit, and holds [`Cancelled`]
/// if it was cancelled.
pub(crate) fn within<R>(
    own: Option<Ns>,
    late: io::ErrorKind,
    operation: impl FnOnce(Option<Ns>) -> Option<io::Result<R>>,
) -> io::Result<R> {
    let limit = LIMIT.get();
    if limit.cut {
        return Err(io::ErrorKind::TimedOut.into());
    }
    if is_cut() {
        return Err(io::Error::other(Cancelled));
    }
    let deadline = own.map_or(limit.at, |own| own.min(limit.at));
    match operation((deadline != Ns::MAX).then_some(deadline)) {
        Some(result) => result,
        None if cut_off() => Err(io::Error::other(Cancelled)),
        None if deadline == limit.at => {
            LIMIT.set(Limit { cut: true, ..limit });
            Err(io::ErrorKind::TimedOut.into())
        }
        None => Err(late.into()),
    }
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

/// Runs `f` with a limit on how long its network operations may wait, connecting and looking names up included: once
/// `time` has passed, an operation that waits fails with `TimedOut`, and so do all that `f` begins after that. Limits
/// nest; the shorter one counts. Other waits have limits of their own: `Mutex::try_lock_for`,
/// `Receiver::recv_timeout`, `JoinHandle::join_timeout` and the like.
///
/// A thread cannot be stopped in the middle of a computation without leaving its locks held, so `f` is not cut off: it
/// sees the errors and returns. If none of its operations was cut off, its value is returned however late it comes:
/// a connection that was accepted in the last moment is not lost.
///
/// ```
/// # use std::time::Duration;
/// # let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
/// # runtime.run(|| {
/// let listener = heddle_rt::net::TcpListener::bind("127.0.0.1:0").unwrap();
/// let accepted = heddle_rt::timeout(Duration::from_millis(1), || listener.accept());
/// assert!(accepted.is_err());
/// # });
/// # Ok::<(), heddle_rt::ConfigError>(())
/// ```
///
/// # Errors
/// [`Elapsed`] if the limit cut off an operation of `f`; the value of `f` is dropped then.
pub fn timeout<R>(time: Duration, f: impl FnOnce() -> R) -> Result<R, Elapsed> {
    let limited = Limited::new(now() + Ns::from(time));
    let value = f();
    if limited.is_cut() { Err(Elapsed) } else { Ok(value) }
}

/// Gives the calling task a time limit while this lives.
struct Limited {
    outer: Limit,
}

impl Limited {
    fn new(at: Ns) -> Limited {
        let outer = LIMIT.get();
        LIMIT.set(Limit { at: outer.at.min(at), cut: outer.cut });
        Limited { outer }
    }

    fn is_cut(&self) -> bool {
        LIMIT.get().cut
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let inner = LIMIT.get();
        // If the outer limit was the shorter one, it made the cut.
        let cut = self.outer.cut || (inner.cut && inner.at == self.outer.at);
        LIMIT.set(Limit { cut, ..self.outer });
    }
}

/// A time to wait for in a [`select!`](crate::select); see [`after`].
#[derive(Debug)]
pub struct After {
    at: Ns,
    is_received: AtomicBool,
}

/// Something to receive once, in `time` from now: an arm of a [`select!`](crate::select). Made outside a loop, it
/// limits the whole loop; made in the arm, each round.
///
/// ```
/// use heddle_rt::{after, select, sync::mpsc};
/// use std::time::Duration;
///
/// let (beat, beats) = mpsc::channel();
/// heddle_rt::spawn(move || while beat.send(()).is_ok() {
///     heddle_rt::sleep(Duration::from_millis(1));
/// });
/// let (end, mut count) = (after(Duration::from_millis(20)), 0);
/// loop {
///     select! {
///         recv(beats) -> beat => count += usize::from(beat.is_ok()),
///         recv(end) -> _ => break,
///     }
/// }
/// assert!(count > 0);
/// ```
pub fn after(time: Duration) -> After {
    After { at: now() + Ns::from(time), is_received: AtomicBool::new(false) }
}

/// Receives the time for which it was due.
impl SelectRecv for After {
    type Item = Ns;

    fn attempt(&self) -> Option<Result<Ns, RecvError>> {
        let is_new = now() >= self.at && !self.is_received.swap(true, Ordering::Relaxed);
        is_new.then_some(Ok(self.at))
    }

    fn register(&self, _: &Arc<Selection>, _: usize) -> bool {
        self.due().is_some_and(|at| now() >= at)
    }

    fn unregister(&self, _: &Arc<Selection>) {}

    fn due(&self) -> Option<Ns> {
        (!self.is_received.load(Ordering::Relaxed)).then_some(self.at)
    }
}

/// Regular times; see [`interval`].
#[derive(Debug)]
pub struct Interval {
    pub(crate) next: Ns,
    period: Ns,
}

/// Ticks now and then every `period`. Missed ticks are skipped, so a slow user does not get a burst.
///
/// # Panics
/// If `period` is zero.
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval needs a period above zero");
    Interval { next: now(), period: period.into() }
}

impl Interval {
    /// Waits for the next tick. Returns the time for which it was due. [`Interval::tick_async`] is the same as a
    /// future.
    pub fn tick(&mut self) -> Ns {
        sleep_until(self.next);
        self.advance()
    }

    /// Returns the time of the tick that has come, and sets that of the next.
    pub(crate) fn advance(&mut self) -> Ns {
        let due = self.next;
        let behind = (now() - due).0 / self.period.0;
        self.next = due + self.period * (behind + 1);
        due
    }
}
