//! Tasks that borrow from their creator.

use crate::ambient;
use crate::futures::{self, spawn_borrowing};
use crate::spawn::{Builder, JoinHandle};
use crate::sync::{Mutex, WaitQueue};
use heddle_core::TaskAttrs;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

#[derive(Default)]
struct State {
    running: AtomicUsize,
    panicked: AtomicBool,
    ended: WaitQueue,
}

/// A scope in which tasks are created; see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    state: Arc<State>,
    // Invariant in both, as `std::thread::Scope` is.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// A handle to wait for the end of a scoped task.
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<()>,
    packet: Arc<Packet<T>>,
    _scope: PhantomData<&'scope ()>,
}

/// The result of a scoped task. A panic that was not joined becomes the scope's.
struct Packet<T> {
    state: Arc<State>,
    result: Mutex<Option<std::thread::Result<T>>>,
}

impl<T> Packet<T> {
    /// Takes the result of the task, which has ended.
    fn take(&self) -> std::thread::Result<T> {
        let result = self.result.lock().take();
        result.expect("a task that has ended left its result")
    }
}

impl<T> Drop for Packet<T> {
    fn drop(&mut self) {
        if matches!(self.result.get_mut(), Some(Err(_))) {
            self.state.panicked.store(true, Ordering::Release);
        }
    }
}

/// Runs `f`, which may create tasks that borrow local variables; returns when all of them have ended.
///
/// ```no_run
/// let mut counts = [0; 3];
/// heddle_rt::scope(|s| {
///     for count in &mut counts {
///         s.spawn(|| *count += 1);
///     }
/// });
/// assert_eq!(counts, [1, 1, 1]);
/// ```
///
/// # Panics
/// If `f` panics, or a task panicked that was not joined.
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope { state: Arc::default(), _scope: PhantomData, _env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    let state = &scope.state;
    while state.running.load(Ordering::Acquire) != 0 {
        state.ended.wait_while(|| state.running.load(Ordering::SeqCst) != 0, None);
    }
    match result {
        Err(panic) => resume_unwind(panic),
        Ok(_) if state.panicked.load(Ordering::Acquire) => panic!("a scoped task panicked"),
        Ok(value) => value,
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Creates a task that may borrow anything that outlives the scope.
    ///
    /// # Panics
    /// If the system has no memory for a stack.
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.try_spawn(Builder::new(), f).expect("cannot create a task")
    }

    /// Creates a task as [`Scope::spawn`] does, with the name, stack and attributes of `builder`.
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    pub fn try_spawn<F, T>(
        &'scope self,
        builder: Builder,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let sched = ambient::scheduler()?;
        let state = self.state.clone();
        state.running.fetch_add(1, Ordering::Relaxed);
        let packet = Arc::new(Packet { state: state.clone(), result: Mutex::new(None) });
        let (running, theirs) = (Running(state), packet.clone());
        let f = move || {
            let result = catch_unwind(AssertUnwindSafe(f));
            *theirs.result.lock() = Some(result);
            drop(theirs);
            // Must be last: from here on the task uses nothing of the scope.
            drop(running);
        };
        // SAFETY: the scope returns only once `running` is dropped, and by then the task uses nothing that it borrowed.
        let handle = unsafe { builder.spawn_on(sched, f) }?;
        Ok(ScopedJoinHandle { handle, packet, _scope: PhantomData })
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Creates an async task that may borrow anything that outlives the scope, which waits for it: a scope that could
    /// be left at an await would be unsound, because a future can be forgotten. Inside a poll the scope holds its stack
    /// meanwhile, and its worker runs others.
    ///
    /// ```
    /// let mut counts = [0; 3];
    /// heddle_rt::scope(|s| {
    ///     for count in &mut counts {
    ///         drop(s.spawn_async(async { *count += 1 }));
    ///     }
    /// });
    /// assert_eq!(counts, [1, 1, 1]);
    /// ```
    ///
    /// # Panics
    /// If the system has no memory.
    pub fn spawn_async<F>(&'scope self, future: F) -> ScopedTask<'scope, F::Output>
    where
        F: Future + Send + 'scope,
        F::Output: Send + 'scope,
    {
        let state = self.state.clone();
        state.running.fetch_add(1, Ordering::Relaxed);
        let packet = Arc::new(Packet { state: state.clone(), result: Mutex::new(None) });
        let (running, theirs) = (Running(state), packet.clone());
        let task =
            Scoped { future: Some(Box::pin(future)), packet: Some(theirs), _running: running };
        let spawned = ambient::scheduler().and_then(|sched| {
            // SAFETY: the scope returns only once `running` is dropped, and by then the future and its value are.
            unsafe { spawn_borrowing(sched, TaskAttrs::default(), task) }
        });
        let handle = spawned.expect("cannot create a task");
        ScopedTask { handle, packet, _scope: PhantomData }
    }
}

/// A future of a scope. What it borrows is dropped before `_running`, however it ends.
struct Scoped<F: Future> {
    future: Option<Pin<Box<F>>>,
    packet: Option<Arc<Packet<F::Output>>>,
    _running: Running,
}

impl<F: Future> Future for Scoped<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let future = self.future.as_mut().expect("not polled after it is ready");
        let result = match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(panic) => Err(panic),
        };
        self.future = None;
        if let Some(packet) = self.packet.take() {
            *packet.result.lock() = Some(result);
        }
        Poll::Ready(())
    }
}

/// A handle to await the end of an async task of a scope; see [`Scope::spawn_async`].
pub struct ScopedTask<'scope, T> {
    handle: futures::JoinHandle<()>,
    packet: Arc<Packet<T>>,
    _scope: PhantomData<&'scope ()>,
}

impl<T> ScopedTask<'_, T> {
    /// Cancels the task; see [`futures::JoinHandle::abort`].
    pub fn abort(&self) {
        self.handle.abort();
    }

    /// Returns whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Waits for the task's value. Returns `None` if it was aborted.
    ///
    /// # Errors
    /// The payload of the task's panic.
    pub fn join(self) -> std::thread::Result<Option<T>> {
        let _ = crate::block_on(self.handle);
        self.packet.result.lock().take().transpose()
    }
}

impl<T> fmt::Debug for ScopedTask<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedTask").field("is_finished", &self.is_finished()).finish()
    }
}

/// Counts one running task, whether it ends, panics or never starts.
struct Running(Arc<State>);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.ended.wake_all();
        }
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the task's end and returns its value.
    ///
    /// # Errors
    /// The payload of the task's panic.
    pub fn join(self) -> std::thread::Result<T> {
        self.handle.join()?;
        self.packet.take()
    }

    /// Like [`ScopedJoinHandle::join`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// The handle if `timeout` has passed. The inner error is that of [`ScopedJoinHandle::join`].
    pub fn join_timeout(self, timeout: Duration) -> Result<std::thread::Result<T>, Self> {
        let ScopedJoinHandle { handle, packet, _scope } = self;
        match handle.join_timeout(timeout) {
            Ok(ended) => Ok(ended.and_then(|()| packet.take())),
            Err(handle) => Err(ScopedJoinHandle { handle, packet, _scope }),
        }
    }

    /// Returns whether the task has ended. Does not wait.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}
