//! Creating async tasks.

use super::JoinHandle;
use crate::ambient;
use crate::carrier::typed::{Boxed, Typed, class_of};
use crate::preempt::NoPreempt;
use crate::runtime::Runtime;
use crate::task::{HeaderRef, Scheduler, Vtable};
use heddle_core::{Class, Ns, TaskAttrs};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Creates an async task in the caller's runtime, or in the process-wide one if the caller is neither a task nor a
/// future of any; see [`Builder`] for hints to the policy.
///
/// The future is polled on the runtime's workers. A poll that outlives its quantum is preempted, as a thread is: others
/// run, and it goes on later, perhaps on another worker, with its stack and its thread-local variables as they were.
/// Nothing needs to be `Send` but the future, as on other executors.
///
/// # Panics
/// If the system has no memory.
#[inline]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let sched = ambient::scheduler().expect("cannot create a task");
    spawn_on(sched, TaskAttrs::default(), future).expect("cannot create a task")
}

/// A builder of async tasks: attributes for the policy.
///
/// ```no_run
/// use heddle_rt::{Class, futures::Builder};
/// let task = Builder::new().class(Class::BE).spawn(async { 6 * 7 }).unwrap();
/// assert_eq!(task.join().unwrap(), 42);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Builder {
    attrs: TaskAttrs,
}

impl Builder {
    /// Returns a builder without attributes for the policy.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Sets the kind of work.
    pub fn class(mut self, class: Class) -> Self {
        self.attrs.class = class;
        self
    }

    /// Sets the time by which the task should be done (see [`crate::now`]).
    pub fn deadline(mut self, at: Ns) -> Self {
        self.attrs.deadline = Some(at);
        self
    }

    /// Sets how long the task is expected to run.
    pub fn expected(mut self, time: Ns) -> Self {
        self.attrs.expected = Some(time);
        self
    }

    /// Creates the task in the caller's runtime; see [`spawn`].
    ///
    /// # Errors
    /// If the system has no memory, or too many tasks are alive.
    pub fn spawn<F>(self, future: F) -> io::Result<JoinHandle<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn_on(ambient::scheduler()?, self.attrs, future)
    }

    /// Creates the task in `runtime`.
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    pub fn spawn_in<F>(self, runtime: &Runtime, future: F) -> io::Result<JoinHandle<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn_on(runtime.engine, self.attrs, future)
    }
}

/// Creates a detached task of `sched`. Returns the CPU at which it was created.
#[cfg(virtual_time)]
pub(crate) fn spawn_at_home(
    sched: &'static dyn Scheduler,
    attrs: TaskAttrs,
    future: impl Future<Output = ()> + Send + 'static,
) -> usize {
    let handle = spawn_on(sched, attrs, future).expect("memory for a task");
    handle.home()
}

/// Creates a task of `sched`.
#[inline(always)]
fn spawn_on<F>(
    sched: &'static dyn Scheduler,
    attrs: TaskAttrs,
    future: F,
) -> io::Result<JoinHandle<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: it borrows nothing.
    unsafe { spawn_borrowing(sched, attrs, future) }
}

/// Creates a task of `sched`.
///
/// # Safety
/// Everything that `F` and its output borrow outlives the task and its handle.
#[inline(always)]
pub(crate) unsafe fn spawn_borrowing<F>(
    sched: &'static dyn Scheduler,
    attrs: TaskAttrs,
    future: F,
) -> io::Result<JoinHandle<F::Output>>
where
    F: Future + Send,
    F::Output: Send,
{
    // SAFETY: the tables are those of the futures, and their outputs are taken as `F`'s.
    let header = unsafe {
        match const { class_of::<F>().is_some() } {
            true => start(sched, attrs, future, &Typed::<F>::VTABLE),
            false => {
                const { assert!(class_of::<Boxed<F>>().is_some(), "two pointers fit") };
                start(sched, attrs, Boxed(Box::pin(future)), &Typed::<Boxed<F>>::UNBOXING)
            }
        }
    };
    Ok(JoinHandle::new(header?))
}

/// # Safety
/// `vtable` is of `F`, which fits a class.
#[inline(always)]
unsafe fn start<F: Future>(
    sched: &'static dyn Scheduler,
    attrs: TaskAttrs,
    future: F,
    vtable: &'static Vtable,
) -> io::Result<HeaderRef> {
    let _guard = NoPreempt::new();
    let header = HeaderRef::create(sched, attrs, future, vtable)?;
    sched.start(header.entity());
    Ok(header)
}

/// Lets other tasks run, and returns when the policy chooses this one again.
///
/// ```
/// # let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
/// # runtime.block_on(async {
/// heddle_rt::futures::yield_now().await;
/// # });
/// # Ok::<(), heddle_rt::ConfigError>(())
/// ```
pub fn yield_now() -> YieldNow {
    YieldNow { has_yielded: false }
}

/// The future of [`yield_now`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct YieldNow {
    has_yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_yielded {
            return Poll::Ready(());
        }
        self.has_yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
