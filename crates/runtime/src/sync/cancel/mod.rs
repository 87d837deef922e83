//! Cooperative cancellation: a token that wakes what waits.

mod scope;
mod waits;

pub(crate) use scope::{Cancellable, cut_off, is_cut};
pub(crate) use waits::Registration;

use super::select::{CancelArm, Selection, Selectors, Wait, select};
use super::{Mutex, WaitQueue};
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Tells tasks and threads to stop, and wakes those that wait for it: the `CancellationToken` of tokio-util, C++'s
/// `stop_source` and `stop_token` in one. Clones are the same token; [children](CancellationToken::child_token) are
/// cancelled with their parent, but not the other way round.
///
/// Cancelling never ends a task: a stack that is torn down in the middle of a computation would leave its locks held
/// and its invariants broken. It sets a flag that cannot be cleared and ends waits. The task sees that and returns.
///
/// ```
/// use heddle_rt::sync::CancellationToken;
/// use std::time::Duration;
///
/// let token = CancellationToken::new();
/// let child = token.child_token();
/// let worker = heddle_rt::spawn(move || {
///     let mut rounds = 0;
///     while child.sleep(Duration::from_secs(60)).is_ok() {
///         rounds += 1;
///     }
///     rounds
/// });
/// token.cancel();
/// assert_eq!(worker.join().unwrap(), 0);
/// ```
///
/// | to wait for | with a token |
/// |---|---|
/// | the token itself | [`wait`](CancellationToken::wait), [`wait_timeout`](CancellationToken::wait_timeout), |
/// | | [`cancelled_async`](CancellationToken::cancelled_async) |
/// | a time | [`sleep`](CancellationToken::sleep) |
/// | a channel | [`recv`](CancellationToken::recv), or an arm `cancelled(token)` of [`select!`](crate::select) |
/// | a mutex | [`lock`](CancellationToken::lock) |
/// | a reader-writer lock | [`read`](CancellationToken::read), [`write`](CancellationToken::write) |
/// | a permit | [`acquire`](CancellationToken::acquire) |
/// | a condition | [`wait_while`](CancellationToken::wait_while) |
/// | the end of a task | [`join`](CancellationToken::join) |
/// | sockets and names | [`run_until_cancelled`](CancellationToken::run_until_cancelled) |
///
/// What is ready at once is done even if the token is cancelled: only waits end. (A `select!` chooses among ready
/// arms at random.)
#[doc(alias("StopToken", "StopSource", "stop_token"))]
#[derive(Clone)]
pub struct CancellationToken(Arc<Shared>);

/// A wait ended because its [`CancellationToken`] was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled: the operation's cancellation token was cancelled while it waited")]
pub struct Cancelled;

/// Cancels its token when dropped; see [`CancellationToken::drop_guard`].
#[derive(Debug)]
pub struct DropGuard(Option<CancellationToken>);

#[derive(Default)]
struct Shared {
    is_cancelled: AtomicBool,
    state: Mutex<State>,
    /// Futures that wait; tasks and threads are in `state`.
    futures: WaitQueue,
}

#[derive(Default)]
struct State {
    selectors: Selectors,
    children: Vec<Weak<Shared>>,
    /// Look for children that are gone once there are so many.
    prune_at: usize,
}

impl Shared {
    /// Sets the flag and wakes the waiting parties, unless that was done; the children, to be cancelled likewise.
    fn cancel(&self) -> Vec<Weak<Shared>> {
        let mut state = self.state.lock();
        // Under the lock, so that a party that registers either is woken or sees the flag.
        self.is_cancelled.store(true, Ordering::Release);
        let State { selectors, children, .. } = mem::take(&mut *state);
        drop(state);
        selectors.notify_all();
        self.futures.wake_all();
        children
    }
}

impl State {
    fn add_child(&mut self, child: &Arc<Shared>) {
        if self.children.len() >= self.prune_at {
            self.children.retain(|child| child.strong_count() > 0);
            self.prune_at = 2 * self.children.len() + 8;
        }
        self.children.push(Arc::downgrade(child));
    }
}

impl CancellationToken {
    /// A token that is not cancelled.
    pub fn new() -> CancellationToken {
        CancellationToken(Arc::default())
    }

    /// A token that is cancelled with this one, and can be cancelled by itself.
    pub fn child_token(&self) -> CancellationToken {
        let child = CancellationToken::new();
        let mut state = self.0.state.lock();
        if self.is_cancelled() {
            child.0.is_cancelled.store(true, Ordering::Release);
        } else {
            state.add_child(&child.0);
        }
        drop(state);
        child
    }

    /// Cancels the token and its descendants, and wakes all that wait for them. Does nothing if that was done.
    pub fn cancel(&self) {
        let mut descendants = self.0.cancel();
        while let Some(child) = descendants.pop() {
            if let Some(child) = child.upgrade() {
                descendants.extend(child.cancel());
            }
        }
    }

    /// Whether the token is cancelled.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }

    /// Returns a guard that cancels the token when it is dropped.
    pub fn drop_guard(self) -> DropGuard {
        DropGuard(Some(self))
    }

    /// Waits until the token is cancelled.
    pub fn wait(&self) {
        select(&mut [&mut CancelArm::new(self)], Wait::Forever);
    }

    /// Waits until the token is cancelled: [`CancellationToken::wait`] as a future. It is cancel-safe.
    ///
    /// ```
    /// let token = heddle_rt::sync::CancellationToken::new();
    /// let theirs = token.clone();
    /// heddle_rt::spawn(move || theirs.cancel());
    /// heddle_rt::block_on(token.cancelled_async());
    /// assert!(token.is_cancelled());
    /// ```
    pub async fn cancelled_async(&self) {
        let is_cancelled = || self.is_cancelled().then_some(());
        self.0.futures.until(is_cancelled, || !self.is_cancelled()).await;
    }

    /// Waits until the token is cancelled, for at most `timeout`; whether it is.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        select(&mut [&mut CancelArm::new(self)], Wait::For(timeout));
        self.is_cancelled()
    }

    /// Sleeps for `time`.
    ///
    /// # Errors
    /// [`Cancelled`] as soon as the token is.
    pub fn sleep(&self, time: Duration) -> Result<(), Cancelled> {
        if self.wait_timeout(time) { Err(Cancelled) } else { Ok(()) }
    }

    /// Adds a `select!` that waits for the token; true if it is cancelled already, and then it was not added.
    pub(super) fn register(&self, selection: &Arc<Selection>, arm: usize) -> bool {
        let mut state = self.0.state.lock();
        if !self.is_cancelled() {
            state.selectors.add(selection, arm);
        }
        self.is_cancelled()
    }

    pub(super) fn unregister(&self, selection: &Arc<Selection>) {
        self.0.state.lock().selectors.remove(selection);
    }
}

impl DropGuard {
    /// Returns the token, which is not cancelled by this guard any more.
    pub fn disarm(mut self) -> CancellationToken {
        self.0.take().expect("the guard of a token")
    }
}

impl Drop for DropGuard {
    fn drop(&mut self) {
        if let Some(token) = &self.0 {
            token.cancel();
        }
    }
}

impl Default for CancellationToken {
    fn default() -> Self {
        CancellationToken::new()
    }
}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_cancelled = self.is_cancelled();
        f.debug_struct("CancellationToken").field("is_cancelled", &is_cancelled).finish()
    }
}
