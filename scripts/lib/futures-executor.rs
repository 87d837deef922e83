//! The crate `futures-executor` on Heddle, for the suite of `futures` (scripts/test-async-suites).
//!
//! - `block_on` and a `LocalPool` are threads of a runtime of Heddle's that poll; the caller waits for them.
//! - A `ThreadPool` is a runtime, and its tasks are Heddle's async tasks.
//! - A `LocalPool` is a `LocalSet`, which has no counterpart of `try_run_one`.

use futures_core::Stream;
use futures_task::{FutureObj, LocalFutureObj, LocalSpawn, Spawn, SpawnError};
use futures_util::{FutureExt, StreamExt};
use heddle_rt::futures::{Builder, LocalSet};
use heddle_rt::{Runtime, RuntimeBuilder};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::{Deref, DerefMut};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::{fmt, io, panic};

/// Of `block_on` and local pools: the policy is `HEDDLE_POLICY`'s.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| runtime(ThreadPoolBuilder::new().workers.min(2)).expect("a runtime"));

/// Uses of the executor: calls that poll, and tasks of pools.
static TASKS: AtomicUsize = AtomicUsize::new(0);

/// At the end of the process, so that the script can tell tests that use Heddle from others.
#[used]
#[unsafe(link_section = ".fini_array")]
static REPORT: extern "C" fn() = report;

extern "C" fn report() {
    eprintln!("heddle-suite: {} tasks", TASKS.load(Ordering::Relaxed));
}

fn runtime(workers: usize) -> io::Result<Runtime> {
    RuntimeBuilder::new().workers(workers).build().map_err(io::Error::other)
}

/// Calls `f`, such as the body of a test, in a thread of Heddle's, for which the caller waits.
pub fn on_heddle<R>(f: impl FnOnce() -> R) -> R {
    struct Anywhere<T>(T);

    // SAFETY: the caller waits, so no two threads use what is in it, and what belongs to one thread only is a matter of
    // the suite: it passes futures that hold `Rc`s.
    unsafe impl<T> Send for Anywhere<T> {}

    impl<T> Anywhere<T> {
        fn open(self) -> T {
            self.0
        }
    }

    if heddle_rt::in_task() {
        return f();
    }
    let f = Anywhere(f);
    RUNTIME.run(move || Anywhere(f.open()())).open()
}

thread_local!(static ENTERED: Cell<bool> = const { Cell::new(false) });

#[derive(Debug)]
pub struct Enter(());

pub struct EnterError(());

impl fmt::Debug for EnterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnterError").finish()
    }
}

impl fmt::Display for EnterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an execution scope has already been entered")
    }
}

impl std::error::Error for EnterError {}

/// Marks the calling thread of Heddle's, which has thread-local variables of its own.
pub fn enter() -> Result<Enter, EnterError> {
    if ENTERED.replace(true) { Err(EnterError(())) } else { Ok(Enter(())) }
}

impl Drop for Enter {
    fn drop(&mut self) {
        assert!(ENTERED.replace(false));
    }
}

/// Polls the future in a thread of Heddle's.
pub fn block_on<F: Future>(future: F) -> F::Output {
    TASKS.fetch_add(1, Ordering::Relaxed);
    on_heddle(|| {
        let _entered = enter().expect("cannot execute `block_on` from within another executor");
        heddle_rt::block_on(future)
    })
}

pub fn block_on_stream<S: Stream + Unpin>(stream: S) -> BlockingStream<S> {
    BlockingStream { stream }
}

#[derive(Debug)]
pub struct BlockingStream<S: Stream + Unpin> {
    stream: S,
}

impl<S: Stream + Unpin> Deref for BlockingStream<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.stream
    }
}

impl<S: Stream + Unpin> DerefMut for BlockingStream<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl<S: Stream + Unpin> BlockingStream<S> {
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: Stream + Unpin> Iterator for BlockingStream<S> {
    type Item = S::Item;

    fn next(&mut self) -> Option<S::Item> {
        block_on(self.stream.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

#[derive(Debug, Default)]
pub struct LocalPool {
    shared: Rc<Shared>,
}

#[derive(Default)]
struct Shared {
    set: RefCell<Pin<Box<LocalSet>>>,
    /// Spawned since the set was polled, perhaps by its members.
    new: RefCell<Vec<LocalFutureObj<'static, ()>>>,
    /// Of a member: a `LocalSet` catches it, a pool passes it on.
    panic: Cell<Option<Box<dyn Any + Send>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub struct LocalSpawner {
    shared: Weak<Shared>,
}

impl LocalPool {
    pub fn new() -> LocalPool {
        LocalPool::default()
    }

    pub fn spawner(&self) -> LocalSpawner {
        LocalSpawner { shared: Rc::downgrade(&self.shared) }
    }

    /// Polls the members until all have ended.
    pub fn run(&mut self) {
        self.polling(|pool| heddle_rt::block_on(poll_fn(|cx| pool.poll(cx))));
    }

    pub fn run_until<F: Future>(&mut self, future: F) -> F::Output {
        self.polling(|pool| {
            let mut future = std::pin::pin!(future);
            heddle_rt::block_on(poll_fn(|cx| {
                let ready = future.as_mut().poll(cx);
                if ready.is_pending() {
                    let _ = pool.poll(cx);
                }
                ready
            }))
        })
    }

    /// Polls the members until none of them is woken.
    pub fn run_until_stalled(&mut self) {
        struct Woken(AtomicUsize);

        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(1, Ordering::Release);
            }
        }

        self.polling(|pool| {
            let woken = Arc::new(Woken(AtomicUsize::new(1)));
            let waker = Waker::from(woken.clone());
            while woken.0.swap(0, Ordering::AcqRel) == 1 {
                if pool.poll(&mut Context::from_waker(&waker)).is_ready() {
                    break;
                }
            }
        });
    }

    pub fn try_run_one(&mut self) -> bool {
        unimplemented!("a `LocalSet` polls all its members");
    }

    fn polling<R>(&mut self, f: impl FnOnce(&LocalPool) -> R) -> R {
        TASKS.fetch_add(1, Ordering::Relaxed);
        on_heddle(|| {
            let _entered =
                enter().expect("cannot execute `LocalPool` executor from within another executor");
            f(self)
        })
    }

    /// Ready once there is no member.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut set = self.shared.set.borrow_mut();
        loop {
            for future in self.shared.new.take() {
                let shared = Rc::downgrade(&self.shared);
                drop(set.spawn_local(async move {
                    if let (Err(panic), Some(shared)) =
                        (AssertUnwindSafe(future).catch_unwind().await, shared.upgrade())
                    {
                        shared.panic.set(Some(panic));
                    }
                }));
            }
            let polled = set.as_mut().poll(cx);
            if let Some(panic) = self.shared.panic.take() {
                panic::resume_unwind(panic);
            }
            if self.shared.new.borrow().is_empty() {
                return polled;
            }
        }
    }
}

impl LocalSpawn for LocalSpawner {
    fn spawn_local_obj(&self, future: LocalFutureObj<'static, ()>) -> Result<(), SpawnError> {
        let shared = self.shared.upgrade().ok_or_else(SpawnError::shutdown)?;
        shared.new.borrow_mut().push(future);
        Ok(())
    }

    fn status_local(&self) -> Result<(), SpawnError> {
        self.shared.upgrade().map(drop).ok_or_else(SpawnError::shutdown)
    }
}

impl Spawn for LocalSpawner {
    fn spawn_obj(&self, future: FutureObj<'static, ()>) -> Result<(), SpawnError> {
        self.spawn_local_obj(future.into())
    }

    fn status(&self) -> Result<(), SpawnError> {
        self.status_local()
    }
}

/// A runtime of its own, which ends with the last clone and the last task.
#[derive(Clone)]
pub struct ThreadPool {
    runtime: Arc<Runtime>,
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").finish_non_exhaustive()
    }
}

impl ThreadPool {
    pub fn new() -> io::Result<ThreadPool> {
        ThreadPoolBuilder::new().create()
    }

    pub fn builder() -> ThreadPoolBuilder {
        ThreadPoolBuilder::new()
    }

    pub fn spawn_obj_ok(&self, future: FutureObj<'static, ()>) {
        self.spawn_ok(future);
    }

    pub fn spawn_ok<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        TASKS.fetch_add(1, Ordering::Relaxed);
        // A task keeps its pool, as in futures' own.
        let pool = self.clone();
        let task = async move {
            let _pool = pool;
            future.await;
        };
        drop(Builder::new().spawn_in(&self.runtime, task).expect("memory for a task"));
    }
}

impl Spawn for ThreadPool {
    fn spawn_obj(&self, future: FutureObj<'static, ()>) -> Result<(), SpawnError> {
        self.spawn_obj_ok(future);
        Ok(())
    }
}

/// Hooks of its threads are not offered, and stacks have one size.
#[derive(Debug)]
pub struct ThreadPoolBuilder {
    workers: usize,
}

impl Default for ThreadPoolBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ThreadPoolBuilder {
    pub fn new() -> ThreadPoolBuilder {
        ThreadPoolBuilder { workers: std::thread::available_parallelism().map_or(1, |n| n.get()) }
    }

    pub fn pool_size(&mut self, size: usize) -> &mut Self {
        assert!(size > 0);
        self.workers = size;
        self
    }

    /// A runtime has no more workers than CPUs.
    pub fn create(&mut self) -> io::Result<ThreadPool> {
        let workers = self.workers.min(ThreadPoolBuilder::new().workers);
        Ok(ThreadPool { runtime: Arc::new(runtime(workers)?) })
    }
}
