//! A set of async tasks whose values are taken as they arrive.

use super::{AbortHandle, JoinError, JoinHandle};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use std::fmt;
use std::task::{Context, Poll};

/// Async tasks whose values are taken in the order in which they end: the `JoinSet` of tokio. Dropping it aborts those
/// that have not been joined.
///
/// ```
/// # let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
/// # runtime.block_on(async {
/// let mut set = heddle_rt::futures::JoinSet::new();
/// for i in 0..10 {
///     set.spawn(async move { i });
/// }
/// let mut sum = 0;
/// while let Some(value) = set.join_next().await {
///     sum += value.unwrap();
/// }
/// assert_eq!(sum, 45);
/// # });
/// # Ok::<(), heddle_rt::ConfigError>(())
/// ```
pub struct JoinSet<T> {
    tasks: FuturesUnordered<JoinHandle<T>>,
}

impl<T> JoinSet<T> {
    /// Returns an empty set.
    pub fn new() -> JoinSet<T> {
        JoinSet { tasks: FuturesUnordered::new() }
    }

    /// Returns the number of tasks that have not been joined.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns whether all tasks have been joined.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Adds a task.
    pub fn add(&mut self, task: JoinHandle<T>) {
        self.tasks.push(task);
    }

    /// Waits for the next task to end and returns its value; `None` if the set is empty. Cancel-safe: a value that was
    /// not returned stays in the set.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.tasks.next().await
    }

    /// Like [`JoinSet::join_next`], as a poll.
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        self.tasks.poll_next_unpin(cx)
    }

    /// Waits for all tasks and returns their values in the order in which they ended.
    ///
    /// # Panics
    /// If a task panicked, with its payload; if one was aborted.
    pub async fn join_all(mut self) -> Vec<T> {
        let mut values = Vec::with_capacity(self.len());
        while let Some(value) = self.join_next().await {
            match value.map_err(JoinError::try_into_panic) {
                Ok(value) => values.push(value),
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                Err(Err(error)) => panic!("{error}"),
            }
        }
        values
    }

    /// Aborts all tasks; they stay in the set until they are joined.
    pub fn abort_all(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }

    /// Aborts all tasks and waits for their ends.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }

    /// Removes all tasks, which run on.
    pub fn detach_all(&mut self) {
        drop(std::mem::take(&mut self.tasks));
    }
}

impl<T: Send + 'static> JoinSet<T> {
    /// Creates a task of the caller's runtime in this set; see [`super::spawn()`].
    ///
    /// # Panics
    /// If the system has no memory.
    pub fn spawn<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
    {
        let task = super::spawn(future);
        let abort = task.abort_handle();
        self.add(task);
        abort
    }

    /// Runs a call that blocks in this set; see [`super::spawn_blocking()`].
    ///
    /// # Panics
    /// If the system has no memory.
    pub fn spawn_blocking(&mut self, f: impl FnOnce() -> T + Send + 'static) -> AbortHandle {
        let task = super::spawn_blocking(f);
        let abort = task.abort_handle();
        self.add(task);
        abort
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        JoinSet::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}
