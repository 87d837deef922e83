//! Name lookups. The C library's calls block, so a small pool of kernel threads makes them for all runtimes.
//!
//! A lookup that finds all threads busy is queued; one whose time limit passes leaves the queue, which therefore
//! holds only lookups that are still wanted. An idle thread ends after a while.

use crate::preempt::NoPreempt;
use crate::sync::{Cancellable, WaitQueue};
use crate::time::within;
use heddle_core::Ns;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Maximum number of threads. A name server that does not answer occupies one for some seconds.
const THREADS: usize = 8;

/// How long an idle thread waits for a lookup before it ends.
const IDLE: Duration = Duration::from_secs(5);

static POOL: Pool =
    Pool::new(THREADS, IDLE, |host, port| Ok((host, port).to_socket_addrs()?.collect()));

/// Looks up the addresses of `host`. Only the calling task waits.
///
/// # Errors
/// Returns the C library's error, or `TimedOut` if the task's time limit passed.
pub(super) fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    POOL.resolve(host, port)
}

/// Looks up the addresses of `host`; a future that waits. If it is dropped, the lookup leaves the queue.
///
/// # Errors
/// Returns the C library's error.
pub(super) async fn resolve_async(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    POOL.resolve_async(host, port).await
}

/// Looks up a name and blocks the kernel thread meanwhile.
type Resolver = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// See the module documentation.
struct Pool {
    resolver: Resolver,
    max_threads: usize,
    idle_for: Duration,
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    queue: VecDeque<Arc<Lookup>>,
    threads: usize,
    /// Threads that wait for work, including those that were notified but do not run yet.
    idle: usize,
}

/// A lookup in progress or in the queue.
struct Lookup {
    host: String,
    port: u16,
    outcome: Mutex<Option<io::Result<Vec<SocketAddr>>>>,
    done: AtomicBool,
    waiter: WaitQueue,
}

impl Lookup {
    fn new(host: &str, port: u16) -> Arc<Lookup> {
        Arc::new(Lookup {
            host: host.to_owned(),
            port,
            outcome: Mutex::new(None),
            done: AtomicBool::new(false),
            waiter: WaitQueue::new(),
        })
    }

    fn finish(&self, outcome: io::Result<Vec<SocketAddr>>) {
        *self.outcome.lock().unwrap_or_else(|e| e.into_inner()) = Some(outcome);
        self.done.store(true, Ordering::Release);
        self.waiter.wake_all();
    }

    /// Waits for the outcome. `None` if the deadline passes first.
    fn wait(&self, deadline: Option<Ns>) -> Option<io::Result<Vec<SocketAddr>>> {
        let pending = || !self.done.load(Ordering::Acquire);
        while pending() && self.waiter.wait_while(pending, Cancellable(deadline)) {}
        self.outcome()
    }

    /// Waits for the outcome; a future.
    async fn wait_async(&self) -> io::Result<Vec<SocketAddr>> {
        let is_done = || self.done.load(Ordering::Acquire);
        self.waiter.until(|| is_done().then_some(()), || !is_done()).await;
        self.outcome().expect("the outcome of a lookup that is done")
    }

    fn outcome(&self) -> Option<io::Result<Vec<SocketAddr>>> {
        let _guard = NoPreempt::new();
        self.outcome.lock().unwrap_or_else(|e| e.into_inner()).take()
    }
}

impl Pool {
    const fn new(max_threads: usize, idle_for: Duration, resolver: Resolver) -> Pool {
        let state = State { queue: VecDeque::new(), threads: 0, idle: 0 };
        Pool { resolver, max_threads, idle_for, state: Mutex::new(state), work: Condvar::new() }
    }

    /// Locks the state. A calling task holds off preemption.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn resolve(&'static self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let lookup = Lookup::new(host, port);
        within(None, io::ErrorKind::TimedOut, |deadline| {
            if let Err(error) = self.submit(&lookup) {
                return Some(Err(error));
            }
            let outcome = lookup.wait(deadline);
            if outcome.is_none() {
                self.withdraw(&lookup);
            }
            outcome
        })
    }

    async fn resolve_async(&'static self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let pending = PendingLookup { pool: self, lookup: Lookup::new(host, port) };
        self.submit(&pending.lookup)?;
        pending.lookup.wait_async().await
    }

    /// Queues a lookup; starts a thread for it if all are busy and another one is allowed.
    fn submit(&'static self, lookup: &Arc<Lookup>) -> io::Result<()> {
        let _guard = NoPreempt::new();
        let mut state = self.state();
        if state.idle <= state.queue.len() && state.threads < self.max_threads {
            match self.start_thread() {
                Ok(()) => state.threads += 1,
                // A busy thread will take it later.
                Err(_) if state.threads > 0 => {}
                Err(error) => return Err(error),
            }
        }
        state.queue.push_back(lookup.clone());
        self.work.notify_one();
        Ok(())
    }

    /// Removes `lookup` from the queue: its caller has given up.
    fn withdraw(&self, lookup: &Arc<Lookup>) {
        let _guard = NoPreempt::new();
        self.state().queue.retain(|queued| !Arc::ptr_eq(queued, lookup));
    }

    fn start_thread(&'static self) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("heddle-resolve".into());
        thread.spawn(|| self.serve()).map(drop)
    }

    /// The main loop of a thread.
    fn serve(&self) {
        while let Some(lookup) = self.next() {
            lookup.finish((self.resolver)(&lookup.host, lookup.port));
        }
    }

    /// Takes the oldest lookup. `None` if none came in time: the thread is no longer counted and must end.
    fn next(&self) -> Option<Arc<Lookup>> {
        let mut state = self.state();
        if state.queue.is_empty() {
            state.idle += 1;
            let empty = |state: &mut State| state.queue.is_empty();
            let waited = self.work.wait_timeout_while(state, self.idle_for, empty);
            (state, _) = waited.unwrap_or_else(|e| e.into_inner());
            state.idle -= 1;
        }
        let next = state.queue.pop_front();
        if next.is_none() {
            state.threads -= 1;
        }
        next
    }
}

/// A lookup for which a future waits.
struct PendingLookup {
    pool: &'static Pool,
    lookup: Arc<Lookup>,
}

impl Drop for PendingLookup {
    fn drop(&mut self) {
        if !self.lookup.done.load(Ordering::Acquire) {
            self.pool.withdraw(&self.lookup);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RuntimeBuilder, scope, sleep, timeout};
    use std::sync::atomic::AtomicUsize;

    fn count_threads() -> usize {
        let names = std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim_end() == "heddle-resolve").count()
    }

    /// A single test, because it counts the threads of the process.
    #[test]
    fn a_few_threads_look_up_many_names_and_time_limits_apply() {
        static OPEN: AtomicBool = AtomicBool::new(false);
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        static POOL: Pool = Pool::new(3, Duration::from_millis(20), |host, port| {
            CALLS.fetch_add(1, Ordering::Relaxed);
            while !OPEN.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_micros(100));
            }
            Ok(vec![format!("{host}:{port}").parse().map_err(io::Error::other)?])
        });
        let runtime = RuntimeBuilder::new().policy("fifo").workers(1).build().unwrap();
        let limited = || timeout(Duration::from_millis(20), || POOL.resolve("10.0.0.1", 1));
        runtime.run(|| {
            scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| POOL.resolve("10.0.0.1", 1).unwrap());
                }
                while CALLS.load(Ordering::Relaxed) < 3 {
                    sleep(Duration::from_micros(100));
                }
                let tasks: Vec<_> = (0..200).map(|_| s.spawn(limited)).collect();
                let mut held = tasks.into_iter().map(|task| task.join().unwrap());
                assert!(held.all(|found| found.is_err()), "no server answers");
                assert_eq!((count_threads(), POOL.state().threads), (3, 3));
                let mut dropped = Box::pin(POOL.resolve_async("10.0.0.1", 1));
                let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                assert!(dropped.as_mut().poll(&mut cx).is_pending());
                assert_eq!(POOL.state().queue.len(), 1);
                drop(dropped);
                assert!(POOL.state().queue.is_empty(), "lookups that gave up left the queue");
                OPEN.store(true, Ordering::Release);
            });
            scope(|s| {
                for port in 0..200 {
                    s.spawn(move || {
                        let addrs = POOL.resolve("10.0.0.1", port).unwrap();
                        assert_eq!(addrs, [SocketAddr::from(([10, 0, 0, 1], port))]);
                    });
                }
            });
            assert!(POOL.resolve("no address", 1).is_err());
            let found = crate::block_on(POOL.resolve_async("10.0.0.1", 9)).unwrap();
            assert_eq!(found, [SocketAddr::from(([10, 0, 0, 1], 9))]);
            assert!(crate::block_on(POOL.resolve_async("no address", 1)).is_err());
        });
        assert_eq!(CALLS.load(Ordering::Relaxed), 3 + 200 + 3);
        while count_threads() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(POOL.state().threads, 0);
        assert_eq!(
            POOL.resolve("10.0.0.1", 1).unwrap().len(),
            1,
            "a new thread serves an ordinary thread"
        );
    }
}
