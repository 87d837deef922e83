//! Handles to async tasks.

use super::JoinError;
use crate::task::HeaderRef;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A handle to await the value of an async task. Dropping it detaches the task, which runs on.
///
/// Awaiting it is cancel-safe: the value stays until a handle's poll has returned it.
///
/// ```
/// # let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
/// runtime.block_on(async {
///     let task = heddle_rt::futures::spawn(async { 6 * 7 });
///     assert_eq!(task.await.unwrap(), 42);
///     let lost = heddle_rt::futures::spawn(async { panic!("no value") });
///     assert!(lost.await.unwrap_err().is_panic());
///     let idle = heddle_rt::futures::spawn(std::future::pending::<()>());
///     idle.abort();
///     assert!(idle.await.unwrap_err().is_cancelled());
/// });
/// # Ok::<(), heddle_rt::ConfigError>(())
/// ```
#[must_use = "a handle that is dropped detaches its task: use `drop`, or await it"]
pub struct JoinHandle<T> {
    /// `None` once the value was returned.
    future: Option<HeaderRef>,
    _value: PhantomData<T>,
}

// SAFETY: the value is sent to who awaits it; the future is reached through atomics.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: a shared handle shows only whether the task has ended.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> Unpin for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// Takes over the handle's reference of a future that yields `T`.
    #[inline(always)]
    pub(super) fn new(future: HeaderRef) -> JoinHandle<T> {
        JoinHandle { future: Some(future), _value: PhantomData }
    }

    /// Cancels the task: its future is dropped instead of being polled again, and awaiting it fails with
    /// [`JoinError::is_cancelled`].
    ///
    /// A poll that is running, was preempted or waits inside is not cut off, since what is on its stack cannot be
    /// dropped: the task is cancelled when that poll returns, and if it returns a value, the value wins. A poll that
    /// never returns cannot be aborted. Does nothing to a task that has ended.
    pub fn abort(&self) {
        if let Some(future) = self.future {
            future.cancel();
        }
    }

    /// Returns a handle that can abort the task and does not hold its value.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle { future: self.future.inspect(|future| future.get().state.add_reference()) }
    }

    /// Returns whether the task has ended, so that awaiting it does not wait.
    pub fn is_finished(&self) -> bool {
        self.future.is_none_or(|future| future.get().state.is_settled())
    }

    /// Waits for the value in an ordinary thread, in a thread of Heddle's, or in a poll, whose worker runs other tasks
    /// meanwhile.
    ///
    /// # Errors
    /// As awaiting it: a [`JoinError`].
    pub fn join(self) -> Result<T, JoinError> {
        crate::block_on(self)
    }

    /// Returns the CPU at which the task was created; meaningless once it has run.
    #[cfg(virtual_time)]
    pub(super) fn home(&self) -> usize {
        let cpu = self.future.map(|future| &future.get().entity.cpu);
        cpu.map_or(0, |cpu| cpu.load(std::sync::atomic::Ordering::Relaxed) as usize)
    }

    /// Takes the output of a settled future.
    #[inline(always)]
    fn take(&mut self, future: HeaderRef) -> Result<T, JoinError> {
        self.future = None;
        let state = &future.get().state;
        let output = match state.is_lost() {
            false => {
                // SAFETY: done, and this is its handle, which takes the output here only.
                let output = unsafe { future.take_output::<T>() };
                // There is nothing left to drop: the output is gone, and a waker that was published is not ours.
                let _ = state.leave();
                output
            }
            true => {
                leave(future);
                Err(JoinError::RUNTIME_DROPPED)
            }
        };
        future.drop_reference();
        output
    }
}

/// Gives up the interest in the output of `future`.
fn leave(future: HeaderRef) {
    let left = future.get().state.leave();
    // SAFETY: the state says that these are ours.
    unsafe {
        if left.drop_output {
            future.drop_output();
        }
        if left.drop_waker {
            drop(future.take_waker());
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.future.expect("a handle is not polled after it has returned the value");
        let state = &future.get().state;
        // SAFETY: the field is the handle's where the state says so; see `PollWord`.
        unsafe {
            if state.is_settled() {
                return Poll::Ready(self.take(future));
            }
            if state.has_waker() {
                // Published, and read by others only.
                if future.waker().will_wake(cx.waker()) {
                    return Poll::Pending;
                }
                if !state.retract_waker() {
                    return Poll::Ready(self.take(future));
                }
                drop(future.take_waker());
            }
            future.put_waker(cx.waker().clone());
            if state.publish_waker() {
                return Poll::Pending;
            }
            drop(future.take_waker());
        }
        Poll::Ready(self.take(future))
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            leave(future);
            future.drop_reference();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

/// A handle to abort an async task; see [`JoinHandle::abort_handle`]. It does not keep the task's value.
pub struct AbortHandle {
    future: Option<HeaderRef>,
}

impl AbortHandle {
    /// Cancels the task; see [`JoinHandle::abort`].
    pub fn abort(&self) {
        if let Some(future) = self.future {
            future.cancel();
        }
    }

    /// Returns whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.future.is_none_or(|future| future.get().state.is_settled())
    }
}

impl Clone for AbortHandle {
    fn clone(&self) -> AbortHandle {
        AbortHandle { future: self.future.inspect(|future| future.get().state.add_reference()) }
    }
}

impl Drop for AbortHandle {
    fn drop(&mut self) {
        if let Some(future) = self.future {
            future.drop_reference();
        }
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle").field("is_finished", &self.is_finished()).finish()
    }
}
