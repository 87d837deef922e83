//! A set of tasks whose results are taken as they arrive.

use crate::deadline::deadline_after;
use crate::spawn::{Builder, JoinHandle};
use crate::sync::mpsc;
use crate::sync::waiter::Limit;
use crate::time::Elapsed;
use heddle_core::Ns;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

/// Tasks whose results are taken in the order in which they end: the `JoinSet` of tokio.
///
/// ```
/// use heddle_rt::JoinSet;
/// use std::time::Duration;
///
/// let mut set = JoinSet::new();
/// for i in [30, 10] {
///     set.spawn(move || {
///         heddle_rt::sleep(Duration::from_millis(i));
///         i
///     });
/// }
/// while let Some(result) = set.join_next() {
///     println!("slept for {} ms", result.unwrap());
/// }
/// assert!(set.is_empty());
/// ```
///
/// Dropping the set detaches the tasks that have not been joined: they run on, as after the drop of a [`JoinHandle`].
/// (A task cannot be aborted: if the tasks should stop with the set, give each a
/// [`CancellationToken`](crate::sync::CancellationToken) with a
/// [`drop_guard`](crate::sync::CancellationToken::drop_guard).)
pub struct JoinSet<T> {
    /// In the order of creation, by the task's number in this set.
    running: BTreeMap<u64, JoinHandle<T>>,
    created: u64,
    /// Sends the numbers of tasks that are about to end.
    report: mpsc::Sender<u64>,
    ended: mpsc::Receiver<u64>,
}

/// Reports the end of a task when dropped, including by a panic.
struct Report {
    report: mpsc::Sender<u64>,
    number: u64,
}

impl Drop for Report {
    fn drop(&mut self) {
        // Without a receiver, the set is gone.
        let _ = self.report.send(self.number);
    }
}

/// Lasts until the task has ended or was abandoned by its runtime.
struct Watched<'a, T, L> {
    handle: &'a JoinHandle<T>,
    limit: L,
}

impl<T, L: Copy> Clone for Watched<'_, T, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, L: Copy> Copy for Watched<'_, T, L> {}

impl<T, L: Limit> Limit for Watched<'_, T, L> {
    fn park(self) -> bool {
        !self.handle.is_settled() && self.limit.park()
    }
}

impl<T: Send + 'static> JoinSet<T> {
    /// Creates a task in the set.
    ///
    /// # Panics
    /// If the system has no memory for a stack.
    pub fn spawn<F>(&mut self, f: F)
    where
        F: FnOnce() -> T + Send + 'static,
    {
        self.try_spawn(Builder::new(), f).expect("cannot create a task");
    }

    /// Creates a task with the name, stack and attributes of `builder` in the set.
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    pub fn try_spawn<F>(&mut self, builder: Builder, f: F) -> io::Result<()>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        let number = self.created;
        let report = Report { report: self.report.clone(), number };
        let handle = builder.spawn(move || {
            let _report = report;
            f()
        })?;
        self.created += 1;
        self.running.insert(number, handle);
        Ok(())
    }
}

impl<T> JoinSet<T> {
    /// Returns an empty set.
    pub fn new() -> JoinSet<T> {
        let (report, ended) = mpsc::channel();
        JoinSet { running: BTreeMap::new(), created: 0, report, ended }
    }

    /// Returns how many tasks have not been joined.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Returns whether all tasks have been joined.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Waits for the next task to end. Returns its result as [`JoinHandle::join`] does, or `None` if the set is empty.
    pub fn join_next(&mut self) -> Option<std::thread::Result<T>> {
        self.join_limited(None).unwrap_or_else(|_| unreachable!("the wait has no limit"))
    }

    /// Like [`JoinSet::join_next`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// [`Elapsed`] if `timeout` has passed.
    pub fn join_next_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<std::thread::Result<T>>, Elapsed> {
        self.join_limited(deadline_after(timeout))
    }

    /// Returns the result of a task that has ended, if there is one not yet joined.
    pub fn try_join_next(&mut self) -> Option<std::thread::Result<T>> {
        self.join_limited(Some(Ns::ZERO)).ok().flatten()
    }

    /// Waits for all tasks. Returns their values in the order in which they ended.
    ///
    /// # Panics
    /// Passes the first panic of a task on, and detaches the others.
    pub fn join_all(mut self) -> Vec<T> {
        let mut values = Vec::with_capacity(self.len());
        while let Some(result) = self.join_next() {
            values.push(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        values
    }

    /// Lets all tasks run on without the set, leaving it empty.
    pub fn detach_all(&mut self) {
        self.running.clear();
    }

    fn join_limited(
        &mut self,
        limit: impl Limit,
    ) -> Result<Option<std::thread::Result<T>>, Elapsed> {
        loop {
            // One task stands for all in case their runtime is dropped: then none reports.
            let Some((&oldest, handle)) = self.running.first_key_value() else { return Ok(None) };
            let watched = Watched { handle, limit };
            let wait = || self.ended.channel().recv_limited(watched);
            let number = match self.ended.try_recv() {
                Ok(number) => number,
                Err(_) => match handle.watch(wait) {
                    Ok(number) => number,
                    // It has ended, and the report may come late; or its runtime was dropped, and none comes.
                    Err(_) if handle.is_settled() => oldest,
                    Err(_) => return Err(Elapsed),
                },
            };
            // Absent if it was joined before its report came, or detached.
            if let Some(handle) = self.running.remove(&number) {
                return Ok(Some(handle.join()));
            }
        }
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        JoinSet::new()
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T: Send + 'static, F: FnOnce() -> T + Send + 'static> Extend<F> for JoinSet<T> {
    fn extend<I: IntoIterator<Item = F>>(&mut self, tasks: I) {
        tasks.into_iter().for_each(|task| self.spawn(task));
    }
}

impl<T: Send + 'static, F: FnOnce() -> T + Send + 'static> FromIterator<F> for JoinSet<T> {
    fn from_iter<I: IntoIterator<Item = F>>(tasks: I) -> Self {
        let mut set = JoinSet::new();
        set.extend(tasks);
        set
    }
}
