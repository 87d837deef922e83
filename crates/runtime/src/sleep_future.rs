//! Futures that sleep, and time limits of futures.
//!
//! A [`Sleep`] has a timer in itself, which is set in the wheel of a runtime ([`crate::timers`]) from the first poll
//! that is pending until it fires, or until the future is reset or dropped:
//!
//! ```text
//! idle --poll--> set --fires--> idle
//!   ^             | ^
//!   +--cancelled--+ +--reset: cancelled and set again, with the same waker
//! ```
//!
//! The timer is *set* in the runtime of the polling task, or in the process-wide one, and cancelled through a
//! [`WeakRuntime`], by any thread. If that runtime has ended, the timer is in no wheel any more: the runtime has taken
//! it out and woken the future ([`crate::timers`]), and the next poll sets it in the runtime where that runs.

use crate::ambient;
use crate::core_state::Core;
use crate::engine::WeakRuntime;
use crate::preempt::NoPreempt;
use crate::task::TaskRef;
use crate::time::{Elapsed, Interval, now};
use crate::timers::Timer;
use crate::worker::Worker;
use heddle_core::Ns;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomPinned;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Sleeps for `time` from now: [`sleep`](crate::sleep) as a future.
///
/// ```
/// use std::time::Duration;
///
/// heddle_rt::block_on(heddle_rt::sleep_async(Duration::from_millis(1)));
/// ```
pub fn sleep_async(time: Duration) -> Sleep {
    sleep_until_async(now() + Ns::from(time))
}

/// Sleeps until `at`: [`sleep_until`](crate::sleep_until) as a future.
pub fn sleep_until_async(at: Ns) -> Sleep {
    Sleep { deadline: at, set: None, _pinned: PhantomPinned }
}

/// A future that is ready at a time; see [`sleep_async`].
///
/// It may be polled in a task, in a future of any executor, and in any thread. The runtime of the task that polls it
/// wakes it; in an ordinary thread that is the process-wide one. It may outlive this runtime: when the runtime ends it
/// is polled again, and set in the runtime where that happens. (A future that only a task of the ended runtime polls
/// is never polled again, as that task never runs again.) It may be dropped in any thread, at any point.
///
/// # Panics
/// A poll panics if there is no runtime and none can be started.
#[must_use = "a future does nothing unless it is polled"]
pub struct Sleep {
    deadline: Ns,
    set: Option<Set>,
    _pinned: PhantomPinned,
}

/// A timer in a wheel, or one that has fired.
struct Set {
    timer: Timer<TaskRef>,
    runtime: WeakRuntime,
}

// SAFETY: a timer that is set is used under its wheel's lock, and otherwise by the owner, who may be in any thread.
unsafe impl Send for Sleep {}
// SAFETY: a shared reference reaches the deadline only, which changes by exclusive ones.
unsafe impl Sync for Sleep {}

impl Sleep {
    /// Returns when it is ready.
    pub fn deadline(&self) -> Ns {
        self.deadline
    }

    /// Returns whether that time has come.
    pub fn is_elapsed(&self) -> bool {
        now() >= self.deadline
    }

    /// Changes when it is ready, also if it was. If it was polled and has not woken its task since, it will do so at
    /// the new time; if not, it must be polled first.
    pub fn reset(mut self: Pin<&mut Self>, at: Ns) {
        let runtime = self.set.as_ref().map(|set| set.runtime);
        let waker = self.as_mut().cancel();
        let this = self.as_mut().project();
        this.deadline = at;
        if let (Some(waker), Some(runtime)) = (waker, runtime) {
            self.set(waker, runtime);
        }
    }

    /// The fields. `set` is not moved, nor replaced before it was cancelled or has fired.
    fn project(self: Pin<&mut Self>) -> &mut Self {
        // SAFETY: the functions below keep that.
        unsafe { self.get_unchecked_mut() }
    }

    /// Sets a timer that calls `waker`, in `runtime` if it still takes any. There is none that is set.
    fn set(self: Pin<&mut Self>, waker: Waker, runtime: WeakRuntime) {
        let this = self.project();
        debug_assert!(this.set.is_none());
        let timer = Timer::of_future(this.deadline, waker);
        let set = this.set.insert(Set { timer, runtime });
        let _guard = NoPreempt::new();
        let is_set = runtime.with(|core| {
            // SAFETY: it stays here until `cancel`, which the drop calls too; the future is pinned. A runtime closes
            // its timers before it leaves and can be freed (`runtime::end`).
            let is_earliest = unsafe { core.inputs.timers.set_of_future(cpu_of(core), &set.timer) };
            if is_earliest == Some(true) {
                core.timer_is_earlier();
            }
            is_earliest.is_some()
        });
        if is_set != Some(true) {
            this.set = None;
        }
    }

    /// Takes the timer out of its wheel; its waker, if it has not fired.
    fn cancel(self: Pin<&mut Self>) -> Option<Waker> {
        let this = self.project();
        let set = this.set.as_ref()?;
        if !set.timer.has_fired() {
            let _guard = NoPreempt::new();
            // If the runtime is gone, the timer has left its wheel before.
            set.runtime.with(|core| core.inputs.timers.cancel(&set.timer));
        }
        this.set.take()?.timer.into_waker()
    }

    /// Makes the timer call `waker`. False if it is not set, or will not call: it has fired, or its runtime is gone.
    fn update(&self, waker: &Waker) -> bool {
        let Some(set) = self.set.as_ref().filter(|set| !set.timer.has_fired()) else {
            return false;
        };
        let with_timers = |f: &mut dyn FnMut(&Core) -> bool| {
            let _guard = NoPreempt::new();
            set.runtime.with(f) == Some(true)
        };
        if with_timers(&mut |core| core.inputs.timers.will_wake(&set.timer, waker)) {
            return true;
        }
        let mut waker = Some(waker.clone());
        with_timers(&mut |core| {
            waker = waker.take().map(|waker| core.inputs.timers.replace_waker(&set.timer, waker));
            true
        }) && !set.timer.has_fired()
    }
}

/// The CPU on whose wheel the caller sets a timer. Preemption is off.
fn cpu_of(core: &Core) -> usize {
    match Worker::here() {
        Some(worker) if core.owns(worker) => worker.cpu(),
        _ => core.next_cpu(),
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_elapsed() {
            drop(self.cancel());
            return Poll::Ready(());
        }
        if !self.update(cx.waker()) {
            drop(self.as_mut().cancel());
            let runtime = ambient::weak().expect("a runtime for the timers of futures");
            self.set(cx.waker().clone(), runtime);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // SAFETY: it is not moved any more.
        drop(unsafe { Pin::new_unchecked(self) }.cancel());
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Runs `future` for at most `time` from now. If it is not ready by then, it is dropped. If it is ready, its value is
/// returned, however late it is polled. It is cancel-safe if `future` is.
///
/// ```
/// use heddle_rt::{sleep_async, timeout_async};
/// use std::time::Duration;
///
/// let long = sleep_async(Duration::from_secs(60));
/// let limited = timeout_async(Duration::from_millis(1), long);
/// assert!(heddle_rt::block_on(limited).is_err());
/// ```
///
/// # Errors
/// [`Elapsed`] if the time has passed.
pub fn timeout_async<F: IntoFuture>(
    time: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    let (future, limit) = (future.into_future(), sleep_async(time));
    async move {
        let (mut future, mut limit) = (pin!(future), pin!(limit));
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => limit.as_mut().poll(cx).map(|()| Err(Elapsed)),
        })
        .await
    }
}

impl Interval {
    /// Waits for the next tick: [`Interval::tick`] as a future. Returns the time for which it was due. It is
    /// cancel-safe: a tick counts when it is returned.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let mut ticks = heddle_rt::interval(Duration::from_micros(100));
    /// heddle_rt::block_on(async {
    ///     let first = ticks.tick_async().await;
    ///     assert!(ticks.tick_async().await > first);
    /// });
    /// ```
    pub async fn tick_async(&mut self) -> Ns {
        sleep_until_async(self.next).await;
        self.advance()
    }
}

#[cfg(test)]
mod tests;
