//! Runs on several threads.

use crate::SimError;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// How many runs are made at a time, and the listener that hears of each.
pub struct Pool<'a> {
    threads: usize,
    report: &'a (dyn Fn(&str) -> bool + Sync),
}

impl<'a> Pool<'a> {
    /// Creates a pool of as many threads as this process may use CPUs. `report` hears of each run
    /// before it starts and answers whether to continue.
    pub fn new(report: &'a (dyn Fn(&str) -> bool + Sync)) -> Pool<'a> {
        Pool { threads: thread::available_parallelism().map_or(1, NonZero::get), report }
    }

    /// Sets the number of threads; at least one.
    #[must_use]
    pub fn threads(self, threads: usize) -> Pool<'a> {
        Pool { threads: threads.max(1), ..self }
    }

    /// Reports that `step` starts.
    ///
    /// # Errors
    /// [`SimError::Interrupted`] if the listener wants to stop.
    pub fn begin(&self, step: &str) -> Result<(), SimError> {
        if (self.report)(step) { Ok(()) } else { Err(SimError::Interrupted) }
    }

    /// Does `work` for each of `items`; returns the results in their order. After an error no further
    /// item is started; the error is that of the first item, in their order, that was started and
    /// failed.
    pub(crate) fn map<T: Sync, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(usize, &T) -> Result<R, SimError> + Sync,
    ) -> Result<Vec<R>, SimError> {
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let done: Mutex<Vec<(usize, Result<R, SimError>)>> = Mutex::new(Vec::new());
        let worker = || {
            while !failed.load(Ordering::Relaxed) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(at) else { break };
                let result = work(at, item);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                done.lock().expect("no worker panics with it").push((at, result));
            }
        };
        thread::scope(|scope| {
            let others = self.threads.min(items.len()).saturating_sub(1);
            (0..others).for_each(|_| {
                scope.spawn(worker);
            });
            worker();
        });
        let mut done = done.into_inner().expect("all workers have ended");
        done.sort_by_key(|&(at, _)| at);
        done.into_iter().map(|(_, result)| result).collect()
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
