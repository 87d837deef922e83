//! Creating tasks and waiting for their end.

use crate::join;
use crate::preempt::{self, NoPreempt};
use crate::sync::waiter::Limit;
use crate::task::{Scheduler, Task, TaskRef};
use crate::{ambient, end, pool};
use heddle_arch::Frame;
use heddle_core::{Class, Ns, TaskAttrs};
use std::any::Any;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

/// Closures above this size go to the heap instead of the task's stack.
const LARGE: usize = 2048;

/// What a task of type `F` returning `T` keeps above its stack: its closure, then its result.
struct Packet<F, T> {
    closure: MaybeUninit<F>,
    result: MaybeUninit<std::thread::Result<T>>,
}

/// A builder of tasks: name, stack and attributes for the policy.
///
/// ```no_run
/// use heddle_rt::{Builder, Class};
/// let handle = Builder::new().name("scan").class(Class::BE).spawn(|| 6 * 7).unwrap();
/// assert_eq!(handle.join().unwrap(), 42);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    name: Option<Box<str>>,
    stack: Option<usize>,
    attrs: TaskAttrs,
}

impl Builder {
    /// Returns a builder without a name, with the runtime's stack size and no attributes for the policy.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Sets the name, for reports and debuggers.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the bytes of stack, rounded up to the next of [`crate::STACK_CLASSES`]. Only touched pages cost memory.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack = Some(bytes);
        self
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

    /// Sets all attributes at once.
    pub(crate) fn with_attrs(mut self, attrs: TaskAttrs) -> Self {
        self.attrs = attrs;
        self
    }

    /// Creates the task in the caller's runtime, or in the process-wide one if the caller is not a task.
    ///
    /// # Errors
    /// If the system has no memory for a stack, or the requested stack is larger than the largest class.
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let sched = ambient::scheduler()?;
        // SAFETY: closure and result live as long as the task may.
        unsafe { self.spawn_on(sched, f) }
    }

    /// Creates the task in `sched`.
    ///
    /// # Safety
    /// Everything that `F` borrows outlives the task.
    pub(crate) unsafe fn spawn_on<F, T>(
        self,
        sched: &'static dyn Scheduler,
        f: F,
    ) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        if size_of::<F>() + size_of::<T>() > LARGE {
            let f = Box::new(f);
            // SAFETY: the caller's promise.
            return unsafe { self.prepare_small(sched, move || Box::new(f())) }
                .map(|created| JoinHandle::unboxed(created.start_raw()));
        }
        // SAFETY: the caller's promise.
        unsafe { self.prepare_small(sched, f) }
            .map(|created| JoinHandle::plain(created.start_raw()))
    }

    /// Prepares a task that runs `f`, which fits above its stack.
    ///
    /// # Safety
    /// Everything that `F` borrows outlives the task.
    #[inline(always)]
    pub(crate) unsafe fn prepare_small<F, T>(
        self,
        sched: &'static dyn Scheduler,
        f: F,
    ) -> io::Result<Created<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let class = match self.stack {
            None => sched.default_stack_class(),
            Some(size) => pool::class_for(size).map_err(|most| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("a stack of {size} bytes is too large; the maximum is {most}"),
                )
            })?,
        };
        let guard = NoPreempt::new();
        let task = sched.prepare(class, self.attrs)?;
        // The last task's name is dropped here, not when its block is recycled: that may happen in a worker's loop,
        // which frees no memory (`threads`).
        if self.name.is_some() || task.get().name().is_some() {
            task.get().set_name(self.name);
        }
        // SAFETY: the task is ours alone until `start`; packet and frame fit, being small, and are aligned.
        unsafe {
            let packet = packet_of::<F, T>(task.get());
            (&raw mut (*packet).closure).write(MaybeUninit::new(f));
            let sp = (packet as usize - Frame::SIZE) & !63;
            (sp as *mut Frame).write(Frame::new(run::<F, T>, task.addr()));
            task.get().sp.set(sp);
            let raw = Raw { task, result: &raw mut (*packet).result };
            Ok(Created { raw, sched, _guard: guard })
        }
    }
}

/// A task that does not run yet. Holds preemption off until it does.
#[must_use]
pub(crate) struct Created<T> {
    raw: Raw<T>,
    sched: &'static dyn Scheduler,
    _guard: NoPreempt,
}

impl<T> Created<T> {
    #[inline(always)]
    pub(crate) fn task(&self) -> TaskRef {
        self.raw.task
    }

    /// Makes it runnable. The caller joins or detaches it.
    #[inline(always)]
    pub(crate) fn start(self) -> TaskRef {
        self.start_raw().task
    }

    #[inline(always)]
    fn start_raw(self) -> Raw<T> {
        self.sched.start(self.raw.task.get().entity());
        self.raw
    }
}

/// Returns the packet of a task, right under its control block.
fn packet_of<F, T>(task: &Task) -> *mut Packet<F, T> {
    let align = align_of::<Packet<F, T>>().max(64);
    ((task.top.get() - size_of::<Packet<F, T>>()) & !(align - 1)) as *mut Packet<F, T>
}

/// The first function of every task.
extern "C" fn run<F: FnOnce() -> T, T>(task: usize) -> ! {
    // SAFETY: `prepare_small` passed this task; the switch that brought us here is completed first. The closure was
    // written there and is taken once; the result is written before it is announced.
    let task = unsafe {
        let task = TaskRef::from_addr(task).get();
        preempt::begin(task);
        let packet = packet_of::<F, T>(task);
        let f = (&raw const (*packet).closure).read().assume_init();
        let result = panic::catch_unwind(AssertUnwindSafe(f));
        (&raw mut (*packet).result).write(MaybeUninit::new(result));
        // Before the destructors of thread-local variables, as in std: the result's own `drop` may use them.
        if task.end.result_is_there() {
            drop_result(task, (*packet).result.assume_init_read());
        }
        task
    };
    end::end_thread(task)
}

struct Raw<T> {
    task: TaskRef,
    result: *mut MaybeUninit<std::thread::Result<T>>,
}

/// A handle to wait for the end of a task. Dropping it detaches the task, which runs on.
///
/// ```
/// use std::time::Duration;
///
/// let (stop, stopped) = heddle_rt::sync::oneshot::channel();
/// let handle = heddle_rt::spawn(move || stopped.recv());
/// let handle = handle.join_timeout(Duration::from_millis(1)).unwrap_err();
/// assert!(!handle.is_finished());
/// stop.send(7).unwrap();
/// assert_eq!(handle.join().unwrap(), Ok(7));
/// ```
pub struct JoinHandle<T> {
    inner: Inner<T>,
}

enum Inner<T> {
    Plain(Handle<T>),
    Boxed(Handle<Box<T>>),
}

struct Handle<T> {
    raw: Raw<T>,
    _owns: PhantomData<T>,
}

// SAFETY: the result is sent to the joiner; the task is reached through atomics.
unsafe impl<T: Send> Send for Handle<T> {}
// SAFETY: a shared handle shows only whether the task has ended.
unsafe impl<T: Send> Sync for Handle<T> {}

impl<T> JoinHandle<T> {
    fn plain(raw: Raw<T>) -> Self {
        JoinHandle { inner: Inner::Plain(Handle { raw, _owns: PhantomData }) }
    }

    fn unboxed(raw: Raw<Box<T>>) -> Self {
        JoinHandle { inner: Inner::Boxed(Handle { raw, _owns: PhantomData }) }
    }

    /// Waits for the task's end and returns its value. May be called in tasks and in ordinary threads.
    ///
    /// # Errors
    /// The payload of the task's panic; [`RuntimeDropped`] if its runtime was dropped before it ended.
    ///
    /// # Panics
    /// If the task joins itself, as a thread of the standard library does.
    pub fn join(self) -> std::thread::Result<T> {
        match self.inner {
            Inner::Plain(handle) => handle.join(),
            Inner::Boxed(handle) => handle.join().map(|b| *b),
        }
    }

    /// Like [`JoinHandle::join`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// The handle if `timeout` has passed, to wait again or to drop. The inner error is that of [`JoinHandle::join`].
    ///
    /// # Panics
    /// If the task joins itself.
    pub fn join_timeout(self, timeout: Duration) -> Result<std::thread::Result<T>, JoinHandle<T>> {
        self.join_limited(crate::deadline::deadline_after(timeout))
    }

    /// Joins within `limit`, or returns the handle.
    pub(crate) fn join_limited(
        self,
        limit: impl Limit,
    ) -> Result<std::thread::Result<T>, JoinHandle<T>> {
        match self.inner {
            Inner::Plain(handle) => handle
                .join_limited(limit)
                .map_err(|handle| JoinHandle { inner: Inner::Plain(handle) }),
            Inner::Boxed(handle) => handle
                .join_limited(limit)
                .map(|result| result.map(|b| *b))
                .map_err(|handle| JoinHandle { inner: Inner::Boxed(handle) }),
        }
    }

    fn task(&self) -> TaskRef {
        match &self.inner {
            Inner::Plain(handle) => handle.raw.task,
            Inner::Boxed(handle) => handle.raw.task,
        }
    }

    /// Returns whether the task has ended or never will, so that [`JoinHandle::join`] does not wait.
    pub(crate) fn is_settled(&self) -> bool {
        self.task().get().end.is_settled()
    }

    /// Runs `f`; meanwhile the end of the task, or of its runtime, wakes the caller.
    pub(crate) fn watch<R>(&self, f: impl FnOnce() -> R) -> R {
        join::watch(self.task(), f)
    }

    /// Returns the CPU at which the task was created; meaningless once it has run.
    #[cfg(virtual_time)]
    pub(crate) fn home(&self) -> usize {
        self.task().get().entity().get().cpu.load(std::sync::atomic::Ordering::Relaxed) as usize
    }

    /// Returns whether the task has ended. Does not wait.
    pub fn is_finished(&self) -> bool {
        self.task().get().end.is_done()
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

impl<T> Handle<T> {
    #[inline(always)]
    fn join(self) -> std::thread::Result<T> {
        if !self.raw.task.get().end.is_done() && !join::wait(self.raw.task) {
            std::mem::forget(self);
            return Err(Box::new(RuntimeDropped));
        }
        // SAFETY: the task has ended.
        unsafe { self.take_result() }
    }

    fn join_limited(self, limit: impl Limit) -> Result<std::thread::Result<T>, Self> {
        match join::wait_limited(self.raw.task, limit) {
            // SAFETY: the task has ended.
            Some(true) => Ok(unsafe { self.take_result() }),
            Some(false) => {
                std::mem::forget(self);
                Ok(Err(Box::new(RuntimeDropped)))
            }
            None => Err(self),
        }
    }

    /// # Safety
    /// The task has ended.
    #[inline(always)]
    unsafe fn take_result(self) -> std::thread::Result<T> {
        // SAFETY: the task has written its result, and we read it once: `forget` keeps `drop` from doing so.
        let result = unsafe { (*self.raw.result).assume_init_read() };
        join::recycle(self.raw.task);
        std::mem::forget(self);
        result
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        let task = self.raw.task.get();
        // SAFETY: `detach` calls this only if the result was written; `join`, which reads it, has not run.
        let drop_result = || drop_result(task, unsafe { (*self.raw.result).assume_init_read() });
        if task.end.detach(drop_result) {
            join::recycle(self.raw.task);
        }
    }
}

/// Drops the result of `task`, which was not joined. If its destructor panics, there is no joiner to pass the panic
/// to, and the process ends, as with the threads of the standard library. Called by the last of task and handle.
fn drop_result<T>(task: &Task, result: std::thread::Result<T>) {
    if panic::catch_unwind(AssertUnwindSafe(|| drop(result))).is_err() {
        let name = task.name().unwrap_or("without a name");
        heddle_sys::abort(format_args!(
            "the result of {} ({name}), which was not joined, panicked when it was dropped; there is no joiner to \
             pass the panic to, so the process ends",
            task.id()
        ))
    }
}

/// The error of [`JoinHandle::join`] if the task's runtime was dropped before the task ended: it never will.
///
/// ```no_run
/// let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
/// let sleeper = runtime.spawn(|| heddle_rt::sleep(std::time::Duration::MAX));
/// drop(runtime);
/// assert!(sleeper.join().unwrap_err().is::<heddle_rt::RuntimeDropped>());
/// # Ok::<(), heddle_rt::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", RuntimeDropped::TEXT)]
pub struct RuntimeDropped;

impl RuntimeDropped {
    const TEXT: &str = "the task's runtime was dropped before the task ended; keep the runtime, or use \
                        `Runtime::shutdown`, to wait for it";
}

/// Returns the message of a panic's payload, or of [`RuntimeDropped`].
pub fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .or_else(|| payload.is::<RuntimeDropped>().then_some(RuntimeDropped::TEXT))
        .unwrap_or("a panic without a message")
}
