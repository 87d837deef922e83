//! Futures that are not `Send`.

use super::JoinError;
use futures_channel::oneshot;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, Stream as _};
use futures_util::{FutureExt as _, future};
use std::cell::RefCell;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A set of futures that are polled in one place, so that they need not be `Send`: tokio's `LocalSet`.
///
/// A thread of Heddle's or an ordinary thread polls it ([`crate::block_on()`]). Preempting a poll lets *other tasks*
/// run, never a member of the same set: its members may share `Rc`s and `RefCell`s.
///
/// ```
/// use heddle_rt::futures::{LocalSet, spawn_local};
/// use std::rc::Rc;
///
/// let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
/// let count = runtime.run(|| {
///     let (set, shared) = (LocalSet::new(), Rc::new(1));
///     heddle_rt::block_on(set.run_until(async {
///         let theirs = shared.clone();
///         let task = spawn_local(async move { Rc::strong_count(&theirs) });
///         task.await.unwrap()
///     }))
/// });
/// assert_eq!(count, 2);
/// # Ok::<(), heddle_rt::ConfigError>(())
/// ```
#[derive(Default)]
pub struct LocalSet {
    members: RefCell<FuturesUnordered<LocalBoxFuture<'static, ()>>>,
    new: Rc<New>,
}

/// Members that have been created and not polled.
#[derive(Default)]
struct New {
    futures: RefCell<Vec<LocalBoxFuture<'static, ()>>>,
    /// Of who polls the set.
    waker: RefCell<Option<Waker>>,
}

thread_local! {
    /// The sets that the caller polls, the innermost last.
    static CURRENT: RefCell<Vec<Rc<New>>> = const { RefCell::new(Vec::new()) };
}

/// Leaves the innermost set.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(Vec::pop);
    }
}

/// Creates a future in the set that polls the caller.
///
/// # Panics
/// If no [`LocalSet`] polls the caller.
pub fn spawn_local<F>(future: F) -> LocalJoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let current = CURRENT.with_borrow(|sets| sets.last().cloned());
    current.expect("`spawn_local` outside of a `LocalSet`: use `LocalSet::run_until`").spawn(future)
}

impl New {
    fn spawn<F>(&self, future: F) -> LocalJoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let (send, result) = oneshot::channel();
        let (future, abort) = future::abortable(AssertUnwindSafe(future).catch_unwind());
        let member = async move {
            // Without a handle the value is dropped.
            let _ = send.send(match future.await {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(panic)) => Err(JoinError::panicked(panic)),
                Err(future::Aborted) => Err(JoinError::CANCELLED),
            });
        };
        self.futures.borrow_mut().push(member.boxed_local());
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
        LocalJoinHandle { result, abort }
    }
}

impl LocalSet {
    /// Returns an empty set.
    pub fn new() -> LocalSet {
        LocalSet::default()
    }

    /// Creates a future in this set, which runs when the set is polled.
    pub fn spawn_local<F>(&self, future: F) -> LocalJoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.new.spawn(future)
    }

    /// Polls the set and `future` until `future` is ready, and returns its output. Members that have not ended stay.
    pub async fn run_until<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        future::poll_fn(|cx| {
            let ready = self.enter(|| future.as_mut().poll(cx));
            if ready.is_pending() {
                let _ = self.poll_members(cx);
            }
            ready
        })
        .await
    }

    fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        CURRENT.with_borrow_mut(|sets| sets.push(self.new.clone()));
        let _leave = Leave;
        f()
    }

    /// Polls the members that are due. Ready once there is none.
    fn poll_members(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut members =
            self.members.try_borrow_mut().expect("a set is not polled by its members");
        self.enter(|| {
            loop {
                members.extend(self.new.futures.borrow_mut().drain(..));
                let polled = Pin::new(&mut *members).poll_next(cx);
                if !self.new.futures.borrow().is_empty() {
                    continue;
                }
                match polled {
                    Poll::Ready(Some(())) => {}
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => {
                        *self.new.waker.borrow_mut() = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                }
            }
        })
    }
}

/// Ready once all members have ended.
impl Future for LocalSet {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_members(cx)
    }
}

impl fmt::Debug for LocalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSet").finish_non_exhaustive()
    }
}

/// A handle to await the value of a future of a [`LocalSet`]. Dropping it detaches the future.
pub struct LocalJoinHandle<T> {
    result: oneshot::Receiver<Result<T, JoinError>>,
    abort: future::AbortHandle,
}

impl<T> LocalJoinHandle<T> {
    /// Cancels the future: it is not polled again, and awaiting the handle fails.
    pub fn abort(&self) {
        self.abort.abort();
    }
}

impl<T> Future for LocalJoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The set was dropped, and the future with it.
        let gone = |oneshot::Canceled| Err(JoinError::CANCELLED);
        Pin::new(&mut self.result).poll(cx).map(|result| result.unwrap_or_else(gone))
    }
}

impl<T> fmt::Debug for LocalJoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalJoinHandle").finish_non_exhaustive()
    }
}
