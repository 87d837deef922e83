//! Runs on several threads.

use crate::SimError;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Scope};

/// How many runs are made at a time, and the listener that hears of each.
///
/// Work may use the pool that does it: the threads are shared, and one that has no more to do for a caller is free for
/// the others.
pub struct Pool<'a> {
    threads: usize,
    /// How many more threads may be started now.
    free: AtomicUsize,
    report: &'a (dyn Fn(&str) -> bool + Sync),
}

impl<'a> Pool<'a> {
    /// Creates a pool of as many threads as this process may use CPUs. `report` hears of each run
    /// before it starts and answers whether to continue.
    pub fn new(report: &'a (dyn Fn(&str) -> bool + Sync)) -> Pool<'a> {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        Pool { threads, free: AtomicUsize::new(threads - 1), report }
    }

    /// Sets the number of threads; at least one.
    #[must_use]
    pub fn threads(self, threads: usize) -> Pool<'a> {
        let threads = threads.max(1);
        Pool { threads, free: AtomicUsize::new(threads - 1), ..self }
    }

    /// Reports that `step` starts.
    ///
    /// # Errors
    /// [`SimError::Interrupted`] if the listener wants to stop.
    pub fn begin(&self, step: &str) -> Result<(), SimError> {
        if (self.report)(step) { Ok(()) } else { Err(SimError::Interrupted) }
    }

    /// Returns how many threads of the pool have nothing to do, the caller's own included.
    pub(super) fn idle(&self) -> usize {
        (self.free.load(Ordering::Relaxed) + 1).min(self.threads)
    }

    /// Does `work` for each of `items`; returns the results in their order. After an error no further
    /// item is started; the error is that of the first item, in their order, that was started and
    /// failed.
    pub(crate) fn map<T: Sync, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(usize, &T) -> Result<R, SimError> + Sync,
    ) -> Result<Vec<R>, SimError> {
        let (next, failed, done) = Default::default();
        let map = Map { pool: self, items, work, next, failed, done };
        thread::scope(|scope| map.work(scope));
        let mut done = map.done.into_inner().expect("all workers have ended");
        done.sort_by_key(|&(at, _)| at);
        done.into_iter().map(|(_, result)| result).collect()
    }

    /// Takes a free thread of the pool, if there is one.
    fn take(&self) -> Option<Permit<'_, 'a>> {
        let one_less = |free: usize| free.checked_sub(1);
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        taken.ok().map(|_| Permit(self))
    }
}

/// A thread of the pool; it is free again when this is dropped.
struct Permit<'p, 'a>(&'p Pool<'a>);

impl Drop for Permit<'_, '_> {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::Relaxed);
    }
}

/// One call of [`Pool::map`].
struct Map<'m, 'a, T, R, W> {
    pool: &'m Pool<'a>,
    items: &'m [T],
    work: W,
    next: AtomicUsize,
    failed: AtomicBool,
    done: Mutex<Vec<(usize, Result<R, SimError>)>>,
}

impl<T, R, W> Map<'_, '_, T, R, W>
where
    T: Sync,
    R: Send,
    W: Fn(usize, &T) -> Result<R, SimError> + Sync,
{
    /// Works on the items that are left. Before each, has a thread that has become free work on them, too.
    fn work<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        while !self.failed.load(Ordering::Relaxed) {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = self.items.get(at) else { break };
            if at + 1 < self.items.len()
                && let Some(permit) = self.pool.take()
            {
                scope.spawn(move || {
                    let _permit = permit;
                    self.work(scope);
                });
            }
            let result = (self.work)(at, item);
            self.failed.fetch_or(result.is_err(), Ordering::Relaxed);
            self.done.lock().expect("no worker panics with it").push((at, result));
        }
    }
}

impl Default for Pool<'_> {
    /// All CPUs, without a listener.
    fn default() -> Self {
        Pool::new(&|_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_whatever_the_threads() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [1, 2, 7] {
            let squares = Pool::default().threads(threads).map(&items, |_, &n| Ok(n * n)).unwrap();
            assert_eq!(squares, items.iter().map(|n| n * n).collect::<Vec<_>>());
        }
    }

    /// Each item of the outer call uses the pool itself; all runs are made, and never more than there are threads.
    #[test]
    fn calls_within_calls_share_the_threads() {
        for threads in [1, 2, 5] {
            let pool = Pool::default().threads(threads);
            let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let run = |_: usize, &n: &u64| {
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                thread::yield_now();
                now.fetch_sub(1, Ordering::Relaxed);
                Ok(n)
            };
            let inner: Vec<u64> = (0..20).collect();
            let sums = pool.map(&[(); 6], |_, ()| Ok(pool.map(&inner, run)?.iter().sum::<u64>()));
            assert_eq!(sums.unwrap(), [190; 6]);
            assert!(most.into_inner() <= threads);
            assert_eq!(pool.idle(), threads);
        }
    }

    #[test]
    fn a_listener_can_end_it() {
        let count = AtomicUsize::new(0);
        let report = |_: &str| count.fetch_add(1, Ordering::Relaxed) < 3;
        let pool = Pool::new(&report).threads(1);
        let result = pool.map(&[(); 10], |_, ()| pool.begin("step"));
        assert!(matches!(result, Err(SimError::Interrupted)));
        assert_eq!(count.into_inner(), 4);
    }
}
