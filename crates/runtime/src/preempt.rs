//! Taking the CPU from a task, and holding that off.
//!
//! A task is interrupted by a signal for one of three reasons. Its worker's [alarm](crate::alarm) has rung: then the
//! task checks what waits and asks the policy. Another thread *asks* it to go ([`Mechanism::send`]), because the policy has
//! said so. Or its worker has lost its CPU, while it slept in the kernel, and it computes again. The signal arrives
//! somewhere in the task. It is answered there unless the preempt count is above zero (then when the count falls to
//! zero) or the interrupted instruction belongs to the C library or an allocator ([`crate::code`]), which may hold a
//! lock that others need (then at the end of the next section without preemption, or when the alarm rings or the
//! ticker interrupts it again). Otherwise the handler itself switches away: the kernel's signal frame on the task's
//! stack holds all registers, vector state included.
//!
//! # No request is lost
//!
//! A thread that asks has seen, under the lock of the worker's queue, a task there that is to run instead of the
//! worker's own.
//!
//! 1. A request is a flag of the worker (`asked`), and then a signal. The kernel keeps one signal of a kind for a
//!    thread and merges others with it, the alarm's too, until a handler begins: each request is followed by a
//!    handler, which finds the flag. The flag never keeps a thread from sending. (One that did would be cleared by the
//!    handler; a signal that comes before the worker has its block behind GS cannot do that, and the worker would be
//!    deaf forever.)
//! 2. The handler finds no task: the worker is in its loop, or not there yet, or its task has ended. Whatever it runs
//!    next, it takes from the queue under the lock, after the thread that asked. From the lock until the next task is
//!    there (`CURRENT` is set before the lock is released) no thread can ask it to go. (With a dispatcher a task
//!    comes by mail, and a request that comes between mail and task waits for the policy's tick.) So the flag is
//!    forgotten there, too.
//! 3. The handler finds a task, and switches away or leaves the pending bit. The bit is forgotten where the worker
//!    goes to another task, which is again one that it took from the queue.
//! 4. The bit stays, and no section without preemption ends: the C library was interrupted, and the task computes on.
//!    The alarm rings again, some times; the ticker sees the count, and interrupts it again while a task waits
//!    ([`Remote::is_overdue`]).
//! 5. A worker without a thread (its number is zero) cannot be asked. It has not taken anything from the queue yet.
//!
//! # No lock of the C library is kept
//!
//! The handler runs with its signal blocked, until the task is about to leave or the kernel resumes what was
//! interrupted. A second one would not interrupt the C library but *the handler*, which is ordinary code, and would
//! switch away with the allocator's lock held; it would also pile up frames where signals come faster than they can
//! be received.

use crate::alarm::SIGNAL;
use crate::code;
use crate::report;
use crate::switch::{leave, leave_for};
use crate::task::{GUARD, Next, Task};
use crate::worker::{Remote, Worker};
use heddle_arch::PreemptCount;
use heddle_core::Ns;
use std::io;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// How a running task is preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mechanism {
    /// Not at all: tasks run until they block or yield.
    None,
    /// By a signal (SIGURG, which debuggers and shells ignore).
    #[default]
    Signal,
}

impl Mechanism {
    /// The names, for errors and help.
    pub const NAMES: &'static str = "none, signal";

    /// The shortest quantum that makes sense: below it the cost of preempting exceeds the work done in between.
    pub fn shortest_quantum(self) -> Ns {
        match self {
            Mechanism::None => Ns::ZERO,
            // Virtual time does not pass while a task is preempted.
            Mechanism::Signal if cfg!(virtual_time) => Ns::ZERO,
            Mechanism::Signal => Ns::from_us(10),
        }
    }

    /// Prepares the process.
    pub(crate) fn install(self) -> io::Result<()> {
        static ONCE: OnceLock<Result<(), i32>> = OnceLock::new();
        let done = ONCE.get_or_init(|| {
            // SAFETY: `on_preempt` checks where it interrupts; `on_fault` only reports and ends the process or passes
            // on.
            let installed = unsafe {
                heddle_sys::signal::install(SIGNAL, on_preempt, 0).and_then(|_| {
                    heddle_sys::signal::install(libc::SIGSEGV, on_fault, libc::SA_ONSTACK)
                })
            };
            match installed {
                Ok(previous) => {
                    let _ = PREVIOUS_FAULT.set(Action(previous));
                    Ok(())
                }
                Err(e) => Err(e.raw_os_error().unwrap_or(libc::EINVAL)),
            }
        });
        done.map_err(io::Error::from_raw_os_error)
    }

    /// Asks `worker` to preempt what it runs; false if it could not be asked. A task that asks this of its own
    /// worker, which it does with preemption off, goes when that is allowed again.
    pub(crate) fn send(self, worker: &Remote) -> bool {
        worker.asked.store(true, Ordering::Release);
        let own = Worker::here().is_some_and(|own| std::ptr::eq(&raw const **own, worker));
        if own && self != Mechanism::None {
            // SAFETY: the caller is on a worker.
            unsafe { PreemptCount::set_pending() };
            return true;
        }
        self.interrupt(worker)
    }

    /// Interrupts what `worker` runs, which then checks whether it must go; false if that could not be done.
    pub(crate) fn interrupt(self, worker: &Remote) -> bool {
        match self {
            Mechanism::None => false,
            // Tasks look for themselves whether they were asked.
            Mechanism::Signal if cfg!(virtual_time) => true,
            Mechanism::Signal => match worker.tid.load(Ordering::Relaxed) {
                0 => false,
                tid => heddle_sys::thread::signal(tid, SIGNAL),
            },
        }
    }
}

impl std::str::FromStr for Mechanism {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Mechanism::None),
            "signal" => Ok(Mechanism::Signal),
            "probe" | "uintr" => {
                Err(format!("mechanism `{text}` is not built yet; there are: {}", Self::NAMES))
            }
            _ => Err(format!("no preemption mechanism `{text}`; there are: {}", Self::NAMES)),
        }
    }
}

/// Holds preemption off while it lives. Free in ordinary threads, two instructions in a task.
#[must_use]
pub(crate) struct NoPreempt {
    in_task: bool,
    // The count belongs to the worker that runs this context.
    _not_send: PhantomData<*mut ()>,
}

impl NoPreempt {
    #[inline]
    pub(crate) fn new() -> NoPreempt {
        let in_task = Task::current().is_some();
        if in_task {
            // SAFETY: a task runs on a worker, whose block GS points to.
            unsafe { PreemptCount::disable() };
        }
        NoPreempt { in_task, _not_send: PhantomData }
    }
}

impl Drop for NoPreempt {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `new`; the task may have moved, its depth moved with it.
        if self.in_task && unsafe { PreemptCount::enable() } {
            take_pending();
        }
    }
}

/// Runs `f` without being preempted. For code that holds a lock which other tasks of the same worker would block on
/// in the kernel (a C library's mutex); keep it shorter than a quantum. May be nested; blocking inside is allowed.
///
/// At its end the task looks at the clock itself (10 ns), and if its quantum is over and others wait, lets them run
/// without being interrupted: on a virtual machine the timer and the signal cost tens of microseconds.
#[inline]
pub fn no_preempt<R>(f: impl FnOnce() -> R) -> R {
    let guard = NoPreempt::new();
    let result = f();
    if guard.in_task {
        // SAFETY: a task runs on a worker, and preemption is off.
        let look_at = unsafe { Worker::current() }.look_at.get();
        if look_at != u64::MAX && heddle_sys::clock::ticks() >= look_at {
            look_around();
        }
    }
    result
}

/// The quantum of the calling task is over, in a section that ends: preempts it if the policy says so.
#[cold]
fn look_around() {
    // SAFETY: a task runs on a worker. Deeper sections have an end of their own.
    if let Some(task) = Task::current().filter(|_| unsafe { PreemptCount::depth() } == 1) {
        leave_for(task, task.sched().look_around(task));
    }
}

/// The calling task was interrupted while that was held off: answers now.
#[cold]
pub(crate) fn take_pending() {
    if let Some(task) = Task::current() {
        // SAFETY: a task runs on a worker. The pending bit is reset: the context that resumes starts afresh.
        let due = unsafe {
            PreemptCount::set_depth(1);
            leave_for(task, answer(task));
            PreemptCount::enable()
        };
        if due {
            // Came in the meantime; bounded, because each round lets every other task run first.
            take_pending();
        }
    }
}

/// What runs instead of the calling task, which was interrupted: another one if it was asked to go, or its quantum is
/// over and the policy says so. Preemption is off.
fn answer(task: &'static Task) -> Option<Next> {
    // SAFETY: a task runs on a worker.
    let worker = unsafe { Worker::current() };
    // One that has lost its CPU lets its task queue for that.
    if worker.asked.swap(false, Ordering::AcqRel) || !worker.is_attached() {
        return Some(task.sched().preempt(task));
    }
    if worker.is_early() {
        return None;
    }
    task.sched().look_around(task)
}

extern "C" fn on_preempt(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(task) = Task::current() else { return };
    // SAFETY: a task's FS is loaded only on workers, so GS points to a block; the kernel passes a valid context.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let worker = Worker::current();
        worker.stats.interrupts.add(1);
        let at = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
        if PreemptCount::depth() != 0 {
            return PreemptCount::set_pending();
        }
        let errno = *libc::__errno_location();
        if code::is_held(at) {
            PreemptCount::set_pending();
            worker.alarm.retry();
            *libc::__errno_location() = errno;
            return;
        }
        // What was pending, because it found the C library, is answered with this.
        PreemptCount::set_depth(1);
        worker.alarm.was_heard();
        if let Some(next) = answer(task) {
            // What runs next must be interrupted again. The kernel sets the mask anew where it resumes this task.
            heddle_sys::signal::unblock(SIGNAL);
            leave(task, next);
        }
        // Returning restores the alternate stack of the frame: it must be that of the worker on which we are now.
        context.uc_stack = Worker::current().altstack.get();
        *libc::__errno_location() = errno;
        if PreemptCount::enable() {
            take_pending();
        }
    }
}

struct Action(heddle_sys::signal::Previous);
// SAFETY: a plain description of an action.
unsafe impl Send for Action {}
// SAFETY: as above.
unsafe impl Sync for Action {}
static PREVIOUS_FAULT: OnceLock<Action> = OnceLock::new();

/// Names the task whose stack has overflowed; any other fault is passed on.
extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid description.
    let at = unsafe { (*info).si_addr() } as usize;
    if let Some(task) = Task::current() {
        // SAFETY: the kernel passes a valid context.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        if is_overflow(task, at, registers[libc::REG_RSP as usize] as usize) {
            report_overflow(task);
        }
    }
    pass_on(signal, info, context);
}

/// Whether a fault at address `at` with this stack pointer means that the stack is used up.
fn is_overflow(task: &Task, at: usize, sp: usize) -> bool {
    let (base, end) = (task.stack.base, task.stack.base + GUARD);
    // A frame larger than the guard may land just below it.
    let in_guard = (base - GUARD..end).contains(&at);
    // The kernel found no room for a signal's frame; then it tells no address.
    let no_room =
        at == 0 && (base..end + heddle_sys::memory::signal_frame_size() + 256).contains(&sp);
    in_guard || no_room
}

fn report_overflow(task: &Task) -> ! {
    let name = task.name().unwrap_or("without a name");
    let kib = task.stack.size >> 10;
    report::say(format_args!(
        "\nheddle: {} ({name}) has overflowed its stack of {kib} KiB; give it a larger one with \
         Builder::stack_size, or the runtime with HEDDLE_STACK_SIZE",
        task.id()
    ));
    // SAFETY: ends the process, which is allowed in a signal handler.
    unsafe { libc::abort() }
}

fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(Action(previous)) = PREVIOUS_FAULT.get() else { return };
    let handler = previous.sa_sigaction;
    if handler == libc::SIG_DFL
        || handler == libc::SIG_IGN
        || previous.sa_flags & libc::SA_SIGINFO == 0
    {
        // The instruction faults again, without us.
        heddle_sys::signal::restore(signal, previous);
        return;
    }
    // SAFETY: an installed three-argument handler.
    unsafe {
        let handler: heddle_sys::signal::Handler = std::mem::transmute(handler);
        handler(signal, info, context);
    }
}
