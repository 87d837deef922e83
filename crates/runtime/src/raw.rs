//! The runtime as a thread library sees it: tasks by reference, parking with signals and deadlines, no closures.
//!
//! Not for programs. `heddle-posix` builds the POSIX threads interface on it; what it promises may change with that.

use crate::adopt::{self, Adoption};
use crate::ambient;
use crate::blocking;
use crate::carrier;
use crate::config::RuntimeBuilder;
use crate::cpu_time;
use crate::engine::{Engine, engine_of};
use crate::interpose;
use crate::join;
use crate::kernel_thread::{self, Name};
use crate::poller::Poller;
use crate::preempt;
use crate::spawn::{Builder, Created};
use crate::sync::waiter::{self, Limit};
use crate::take_over;
use crate::task::{Entity, Task, TaskRef};
use crate::tls::{self, dtors};
use crate::worker::Worker;
use heddle_arch::PreemptCount;
use heddle_core::{Class, Ns, TaskAttrs};
use heddle_sys::clock;
use heddle_sys::thread::Blocked;
use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

pub use crate::caller::Caller;
pub use crate::fork::{before as before_fork, in_child as after_fork, in_parent as end_fork};
pub use crate::futex::{
    Dispatch, FUTEX2_REQUEUE, FUTEX2_WAITV, Op, Rules, call, deadline, futex, futex2, hook_syscall,
    lot, of_kernel, span,
};
pub use crate::futures::{ForeignTask, PollFn};
pub use crate::interpose::{
    Around, Create, Entry, create_foreign_thread, hook_create_thread, hook_makers,
};
pub use crate::preempt::{NoPreempt, hook_attention, hook_signals, set_workers_mask};

/// A task by reference. Always valid, but the task may have ended and another may use its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawTask(TaskRef);

impl RawTask {
    /// Returns the calling task, whether or not preemption is held off.
    #[inline]
    pub fn current() -> Option<RawTask> {
        Task::current().map(|task| RawTask(TaskRef::new(task)))
    }

    /// Returns its thread pointer: the `pthread_t` by which the C library knows it.
    #[inline]
    pub fn thread(self) -> usize {
        self.0.get().fs
    }

    /// Returns a word that belongs to the thread library. It outlives the task: the block's next task finds it, too.
    #[inline]
    pub fn extension(self) -> &'static AtomicPtr<()> {
        &self.0.get().extension
    }

    /// Makes it keep, or no longer keep, a kernel thread on which it has lost its CPU: it is not put back into a queue
    /// before it waits.
    pub fn keep_thread(self, keep: bool) {
        self.0.get().keeps_thread.store(keep, Ordering::Relaxed);
    }

    /// Returns whether it keeps its thread.
    #[inline]
    pub fn keeps_thread(self) -> bool {
        self.0.get().keeps_thread.load(Ordering::Relaxed)
    }

    /// Returns the CPU time that it has used, on whichever workers: never less than before. The first question of the
    /// process makes times be kept: what tasks did earlier is not counted, except that a task which is running counts
    /// from then on, or, if another asks, from soon after. Costs a system call, and from then on some 20 ns a switch.
    pub fn cpu_time(self) -> Ns {
        let _guard = NoPreempt::new();
        cpu_time::keep();
        let time = &self.0.get().cpu_time;
        if RawTask::current() == Some(self) {
            // SAFETY: a task runs on a worker, and preemption is off.
            let meter = &unsafe { Worker::current() }.stats.meter;
            meter.on_interrupt(time);
            return meter.of_turn(time, clock::thread_cpu_time).unwrap_or_default();
        }
        let of_other = |sched| {
            let mut workers = engine_of(sched).core().servers.all.iter();
            workers.find_map(|worker| {
                let tid = worker.tid.load(Ordering::Relaxed);
                worker.stats.meter.of_turn(time, || clock::cpu_time_of(tid))
            })
        };
        let in_turn = crate::wake::reach(self.0.get().entity(), of_other).flatten();
        in_turn.unwrap_or_else(|| {
            // A turn that has lasted since before begins when it is interrupted.
            self.interrupt();
            time.get()
        })
    }

    /// Changes its class.
    pub fn set_class(self, class: Class) {
        let _guard = NoPreempt::new();
        let task = self.0.get().entity();
        let _ = crate::wake::reach(task, |sched| {
            sched.set_attrs(task, TaskAttrs { class, ..sched.attrs(task) });
        });
    }

    /// Returns whether it began as [`NewFirst`].
    #[inline]
    pub fn is_first(self) -> bool {
        self.0.get().is_adopted()
    }

    /// Returns the stack that the task itself may use, without its guard.
    pub fn stack(self) -> Range<usize> {
        let task = self.0.get();
        task.stack.base + crate::task::GUARD..task.top.get()
    }

    /// Ends its [`park`], or the next one.
    #[inline]
    pub fn wake(self) {
        let _guard = NoPreempt::new();
        crate::wake::wake(self.0);
    }

    /// Interrupts it if it runs on a worker: its handler of attention is called there ([`hook_attention`]). A task that
    /// does not run is not told; it looks for itself when it runs again.
    pub fn interrupt(self) {
        let _guard = NoPreempt::new();
        let _ = crate::wake::reach(self.0.get().entity(), |sched| {
            let core = engine_of(sched).core();
            let at: *const Entity = self.0.get().entity().get();
            let runs = |worker: &&crate::worker::Remote| {
                ptr::eq(worker.current.load(Ordering::Acquire), at)
            };
            if let Some(worker) = core.servers.all.iter().find(runs) {
                core.settings.mechanism.signal(worker);
            }
        });
    }

    /// Waits for its end within `limit`, which says when to stop: [`JoinLimit`]. Returns whether it has ended.
    ///
    /// The caller is its only joiner, and not the task itself.
    pub fn join(self, limit: &dyn JoinLimit) -> bool {
        let limit = ByRef(limit);
        join::wait_limited(self.0, limit).is_some()
    }

    /// Returns whether it has ended and its stack is free.
    pub fn has_ended(self) -> bool {
        self.0.get().end.is_done()
    }

    /// Gives up the handle: who sees the end recycles the block. Called once, instead of [`RawTask::recycle`].
    pub fn detach(self) {
        if self.0.get().end.detach(|| ()) {
            self.recycle();
        }
    }

    /// Returns the block of a task that has ended to its runtime. Called once, after [`RawTask::join`] returned true.
    pub fn recycle(self) {
        join::recycle(self.0);
    }
}

/// How long a join lasts.
pub trait JoinLimit {
    /// Parks the caller and returns true; returns false without parking once it is to give up.
    fn park(&self) -> bool;
}

#[derive(Clone, Copy)]
struct ByRef<'a>(&'a dyn JoinLimit);

impl Limit for ByRef<'_> {
    fn park(self) -> bool {
        self.0.park()
    }
}

/// Parks the calling task until it is woken or `deadline` has passed. May return spuriously. In a kernel thread, sleeps
/// on the thread's own parker, which only a join wakes.
#[inline]
pub fn park(deadline: Option<Ns>) {
    match deadline {
        None => waiter::park(),
        Some(at) => waiter::park_until(at),
    }
}

/// Lets the calling task look at the clock and at requests, as it does at the end of [`crate::no_preempt`]: if its
/// quantum is over and others wait, it yields to them. 2 ns unless it is.
#[inline]
pub fn look() {
    crate::no_preempt(|| ());
}

/// A task that has been prepared but does not run yet.
#[must_use]
pub struct NewTask(Created<()>);

impl NewTask {
    /// Prepares a task with at least `stack` bytes that will run `f`, in the caller's runtime or the process-wide one.
    ///
    /// # Errors
    /// The system's, if it has no memory or tasks left; [`io::ErrorKind::InvalidInput`] if the stack is larger than
    /// the largest class.
    pub fn create(
        stack: usize,
        attrs: TaskAttrs,
        f: impl FnOnce() + Send + 'static,
    ) -> io::Result<NewTask> {
        let sched = ambient::scheduler()?;
        let builder = Builder::new().stack_size(stack).with_attrs(attrs);
        // SAFETY: what `f` owns is 'static.
        unsafe { builder.prepare_small(sched, f) }.map(NewTask)
    }

    /// Returns the task, which does not run yet.
    #[inline]
    pub fn task(&self) -> RawTask {
        RawTask(self.0.task())
    }

    /// Makes it runnable. The caller joins or detaches it.
    #[inline]
    pub fn start(self) -> RawTask {
        RawTask(self.0.start())
    }
}

/// The calling kernel thread's context, about to become a task that keeps its stack, its thread-local variables and its
/// `pthread_t`. Its kernel thread goes on as the task's *leader*.
#[must_use]
pub struct NewFirst(Adoption);

impl NewFirst {
    /// Prepares the calling context, which may use the stack `stack`, to become a task of the process-wide runtime.
    ///
    /// # Errors
    /// The system's, if it has no memory or tasks left.
    pub fn prepare(stack: Range<usize>) -> io::Result<NewFirst> {
        Adoption::prepare(stack).map(NewFirst)
    }

    /// Returns the task, which does not run yet.
    pub fn task(&self) -> RawTask {
        RawTask(self.0.task())
    }

    /// Returns in the task. Its kernel thread calls `lead`, which returns once the task is to go back to it
    /// ([`go_back`]).
    ///
    /// # Safety
    /// The caller is the context that was prepared. Its kernel thread holds back all signals but the C library's own,
    /// and is not in a signal's handler.
    pub unsafe fn start(self, lead: fn()) {
        // SAFETY: the caller's promise.
        unsafe { self.0.go(lead) };
    }
}

/// Ends the calling task, which began as [`NewFirst`]: returns in the kernel thread that it was, once the leader's
/// function has returned. That thread holds back the signals that it did then. Elsewhere it does nothing.
pub fn go_back() {
    adopt::go_back();
}

/// Runs the calling task's destructors of thread-local variables and keys now, with preemption on.
pub fn run_destructors() {
    if let Some(task) = Task::current() {
        dtors::run(task);
    }
}

/// Gives the calling task a thread number that no thread has had before, and returns it: the C library's recursive
/// locks compare it, and programs that ask for it expect a new thread to have a new one.
pub fn renumber() -> u32 {
    tls::renumber()
}

/// Returns the thread number in the calling task's descriptor.
pub fn block_number() -> u32 {
    tls::number()
}

/// Returns the number of switches that are worth it before a spinning waiter gives up: none on one CPU.
pub fn workers() -> usize {
    ambient::process_wide().map_or(1, |engine: &'static dyn Engine| engine.core().cpus.len())
}

/// Starts the process-wide runtime by `builder`, unless it runs.
///
/// # Errors
/// What is wrong with the configuration, in a sentence.
pub fn start(builder: RuntimeBuilder) -> io::Result<()> {
    ambient::process_wide_by(builder).map(drop)
}

/// Starts a kernel thread that is neither a worker nor a task. Allocates nothing of the program's.
///
/// # Errors
/// The system's.
pub fn kernel_thread(name: impl Display, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    kernel_thread::spawn(Name::of(name), run)
}

/// Runs `f` on a thread that may use all CPUs of the process, as programs that it starts will. Preemption is off then.
pub fn unpinned<R>(f: impl FnOnce() -> R) -> R {
    let _guard = NoPreempt::new();
    if Task::current().is_none() {
        return f();
    }
    interpose::unpin();
    let result = f();
    interpose::pin_again();
    result
}

/// Makes the calling task, which could not do what was asked of it where it was interrupted, be interrupted again soon.
/// For [`hook_attention`].
pub fn interrupt_again() {
    if Task::current().is_some() {
        // SAFETY: a task runs on a worker, and its signal is held back.
        unsafe { Worker::current() }.alarm.retry();
    }
}

/// Lets the calling task be preempted in the handler of attention ([`hook_attention`]), which from then on may leave it
/// by unwinding.
pub fn allow_preemption() {
    heddle_sys::signal::unblock(PREEMPT_SIGNAL);
    crate::uintr::allow();
}

/// The code (`si_code`) of [`PREEMPT_SIGNAL`] from another program that shares the CPU, by a pipe: `POLL_IN`. No
/// program's own SIGURG has it, except one that a descriptor sends by `F_SETSIG`.
pub const ASKED: i32 = 1;

/// Returns whether the calling thread is a worker, in a task or between two. For signal handlers.
pub fn is_worker() -> bool {
    Worker::is_here()
}

/// Returns whether the calling task has given its CPU away to block in the kernel ([`crate::blocking()`]).
pub fn is_blocking() -> bool {
    // SAFETY: a task runs on a worker; the caller is a signal handler on that worker's thread, or holds preemption off.
    Task::current().is_some() && !unsafe { Worker::current() }.is_attached()
}

/// The poller of [`report_readiness`].
static ARMED: AtomicPtr<Poller> = AtomicPtr::new(ptr::null_mut());

/// Makes the process-wide runtime's poller call `report` with each descriptor that was armed ([`arm`]) and is ready,
/// and with what it is ready for, as bits of epoll. It runs between two tasks or with preemption off, and does not
/// wait. Called again for each runtime: a fork's child has a new one.
///
/// # Errors
/// If there is no runtime and none can be started.
pub fn report_readiness(report: fn(RawFd, u32)) -> io::Result<()> {
    let core = ambient::process_wide()?.core();
    core.inputs.poller.set_report(report);
    ARMED.store(ptr::from_ref(&core.inputs.poller).cast_mut(), Ordering::Release);
    let _guard = NoPreempt::new();
    core.source_is_new();
    Ok(())
}

/// Reports `events` of `fd` once, now or when they occur. Replaces what was asked of `fd` before. Returns false if the
/// system cannot watch it.
#[inline]
pub fn arm(fd: RawFd, events: u32) -> bool {
    // SAFETY: null, or the poller of a runtime that is never freed.
    unsafe { ARMED.load(Ordering::Acquire).as_ref() }.is_some_and(|poller| {
        // A descriptor that is new to the kernel is refused at first.
        preempt::keeping_errno(|| poller.arm(fd, events))
    })
}

/// Makes `look` be called each time a task has lost its CPU because it sleeps in the kernel, with the task and the call
/// in which it sleeps, if that is known: by a thread of the runtime's or in a signal's handler. It allocates nothing
/// and waits for nothing.
pub fn hook_take_over(look: fn(RawTask, Option<Blocked>)) {
    static LOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
    fn pass_on(task: TaskRef, call: Option<Blocked>) {
        // SAFETY: stored before this function was made the hook.
        let look: fn(RawTask, Option<Blocked>) =
            unsafe { std::mem::transmute(LOOK.load(Ordering::Acquire)) };
        look(RawTask(task), call);
    }
    LOOK.store(look as *mut (), Ordering::Release);
    take_over::hook(pass_on);
}

/// Makes `made` be called with each context that is made to poll futures, `begins` in that context before its first
/// poll, and `ends` in it as it ends: a thread library's own of what it does for the threads that it creates. They may
/// allocate, and do not wait.
pub fn hook_carriers(made: fn(RawTask), begins: fn(), ends: fn()) {
    static MADE: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
    fn pass_on(task: TaskRef) {
        // SAFETY: stored before this function was made the hook.
        let made: fn(RawTask) = unsafe { std::mem::transmute(MADE.load(Ordering::Acquire)) };
        made(RawTask(task));
    }
    MADE.store(made as *mut (), Ordering::Release);
    carrier::hooks::set(carrier::hooks::Hooks { made: pass_on, begins, ends });
}

/// Gives the calling task's CPU to another worker; the task goes on beside the runtime, on its kernel thread, which may
/// use all CPUs of the process. It comes back to the runtime's CPUs when it next waits, and at its next look unless it
/// [keeps its thread](RawTask::keep_thread).
pub fn leave_cpu() {
    let Some(task) = Task::current() else { return };
    let _guard = NoPreempt::new();
    blocking::give_cpu_away(task);
    interpose::unpin();
}

/// Ends a section of the calling task whose [`NoPreempt`] was forgotten.
pub fn end_no_preempt() {
    NoPreempt::end_forgotten();
}

/// Returns whether preemption is being held off in the calling task.
pub fn is_held() -> bool {
    // SAFETY: a task runs on a worker.
    Task::current().is_some() && unsafe { PreemptCount::depth() } > 0
}

/// Blocks or unblocks the runtime's own signal in a program's mask, so that masks taken from programs never keep a
/// worker from being interrupted.
pub const PREEMPT_SIGNAL: i32 = preempt::SIGNAL;
