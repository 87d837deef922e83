//! Preempting a task, and holding preemption off.
//!
//! A task is interrupted by a signal for one of three reasons. Its worker's [alarm](crate::alarm) has fired: then the
//! task checks what waits and asks the policy. Another thread *requests* preemption ([`Mechanism::send`]) because the
//! policy said so. Or its worker lost its CPU while it slept in the kernel, and now computes again. The signal arrives
//! somewhere in the task. The handler answers it there unless the preempt count is above zero (then it is answered when
//! the count falls to zero) or the interrupted instruction belongs to the C library or an allocator ([`crate::code`]),
//! which may hold a lock that others need (then at the end of the next section without preemption, or when the alarm
//! fires or the ticker interrupts it again). Otherwise the handler itself switches away: the kernel's signal frame on
//! the task's stack holds all registers, vector state included.
//!
//! # No request is lost
//!
//! A thread that requests preemption has seen, under the lock of the worker's queue, a task there that is to run
//! instead of the worker's own.
//!
//! 1. A request is a flag of the worker (`asked`), followed by a signal. The kernel keeps one pending signal of a kind
//!    per thread and merges others into it, including the alarm's, until a handler begins: each request is followed by
//!    a handler, which finds the flag. The flag never keeps a thread from sending. (A flag that did would be cleared
//!    only by the handler; a signal that arrives before the worker has its block behind GS cannot clear it, and the
//!    worker would be deaf forever.)
//! 2. The handler finds no task: the worker is in its loop, or not there yet, or its task has ended. Whatever it runs
//!    next, it takes from the queue under the lock, after the requesting thread. From the lock until the next task is
//!    in place (made current before the lock is released) no thread can request its preemption. (With a dispatcher
//!    a task comes by mail, and a request that comes between mail and task waits for the policy's tick.) So the flag is
//!    cleared there, too.
//! 3. The handler finds a task, and switches away or leaves the pending bit. The bit is cleared when the worker
//!    switches to another task, which again it took from the queue.
//! 4. The bit stays, and no section without preemption ends: the C library was interrupted, and the task computes on.
//!    The alarm fires again, several times; the ticker sees the count, and interrupts it again while a task waits
//!    ([`Remote::is_overdue`]).
//! 5. Another program that wants the worker's CPU ([`crate::share`]) knows no queue, and its signal may come at any
//!    time: one that cannot be answered at once leaves a flag (`unanswered`), at which each context looks after it has
//!    completed the switch to it. Not so the alarm's: if setting it took longer than a quantum, no task would ever run.
//! 6. A worker without a thread (its number is zero) cannot be asked. It has not taken anything from the queue yet.
//!
//! # The C library's locks are never held across a switch
//!
//! The handler runs with its signal blocked until the task is about to leave or the kernel resumes the interrupted
//! code. A second signal would interrupt not the C library but *the handler*, which is ordinary code, and would switch
//! away with the allocator's lock held; frames would also pile up if signals came faster than they can be handled.

mod entry;

pub(crate) use crate::alarm::SIGNAL;
use crate::code;
use crate::report;
use crate::switch::{finish_switch, leave, leave_for};
use crate::task::{GUARD, Next, Task};
use crate::uintr;
use crate::worker::{NEVER, Remote, Worker};
use heddle_arch::PreemptCount;
use heddle_core::Ns;
use heddle_sys::thread::Blocked;
use heddle_sys::timer::ThreadTimer;
use heddle_sys::usdt;
use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

/// How a running task is preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mechanism {
    /// Not at all: tasks run until they block or yield.
    None,
    /// By a signal (SIGURG, which debuggers and shells ignore).
    #[default]
    Signal,
    /// By probes, which the compiler has put into the program (`heddle cc`, `heddle cargo`), and by a signal where code
    /// without probes has had 100 us more than its quantum.
    Probe,
    /// By a user interrupt (Intel, from Sapphire Rapids on; needs the kernel module in `kmod/`), which a timer of the
    /// kernel or another thread sends.
    Uintr,
    /// By a timer of each worker whose ticks reach the task without the kernel, or by the kernel's where the process
    /// may not have that; the task looks at the clock at each tick.
    UintrTimer,
}

impl Mechanism {
    /// The mechanisms' names, for errors and help.
    pub const NAMES: &'static str = "none, signal, probe, uintr, uintr-timer";

    /// Returns the mechanism's name.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::None => "none",
            Mechanism::Signal => "signal",
            Mechanism::Probe => "probe",
            Mechanism::Uintr => "uintr",
            Mechanism::UintrTimer => "uintr-timer",
        }
    }

    /// Returns whether user interrupts are part of it.
    pub(crate) fn has_user_interrupts(self) -> bool {
        matches!(self, Mechanism::Uintr | Mechanism::UintrTimer)
    }

    /// Returns whether tasks look at the clock themselves, at probes or ticks.
    fn has_looks(self) -> bool {
        matches!(self, Mechanism::Probe | Mechanism::UintrTimer)
    }

    /// Returns the shortest sensible quantum: below it, preempting costs more than the work done in between.
    pub fn shortest_quantum(self) -> Ns {
        match self {
            Mechanism::None => Ns::ZERO,
            // Virtual time does not pass while a task is preempted.
            _ if cfg!(virtual_time) => Ns::ZERO,
            Mechanism::Signal => Ns::from_us(10),
            // Probes look at the clock every microsecond or two.
            Mechanism::Probe => Ns::from_us(2),
            // Aspen, section 4.1: the best of their quanta.
            Mechanism::Uintr | Mechanism::UintrTimer => Ns::from_us(5),
        }
    }

    /// Returns how long a task may exceed its quantum before it is interrupted by a signal all the same.
    pub(crate) fn grace(self) -> Ns {
        match self {
            _ if cfg!(virtual_time) => Ns::ZERO,
            Mechanism::Probe | Mechanism::UintrTimer => Ns::from_us(100),
            _ => Ns::ZERO,
        }
    }

    /// Installs the signal handlers for this process. User interrupts are prepared.
    pub(crate) fn install(self) -> io::Result<()> {
        static ONCE: OnceLock<Result<(), i32>> = OnceLock::new();
        once(&ONCE, || {
            // SAFETY: `on_preempt` checks where it interrupts; `on_fault` only reports and ends the process or passes
            // on.
            let previous = unsafe {
                heddle_sys::signal::install(SIGNAL, on_preempt, 0)?;
                heddle_sys::signal::install(libc::SIGSEGV, on_fault, libc::SA_ONSTACK)?
            };
            let _ = PREVIOUS_FAULT.set(Action(previous));
            Ok(())
        })?;
        if self.has_user_interrupts() {
            use_signal_entry()?;
        }
        Ok(())
    }

    /// Requests that `worker` preempt what it runs. Returns false if the request could not be delivered. If a task
    /// requests this of its own worker, with preemption off as required, it yields when preemption is allowed again.
    pub(crate) fn send(self, worker: &Remote) -> bool {
        worker.asked.store(true, Ordering::Release);
        let own = Worker::here().is_some_and(|own| std::ptr::eq(&raw const **own, worker));
        if own && self != Mechanism::None {
            // SAFETY: the caller is on a worker.
            unsafe { PreemptCount::set_pending() };
            return true;
        }
        self.has_looks() && worker.look_now() || self.interrupt(worker)
    }

    /// Interrupts what `worker` runs, which then checks whether it must yield. Returns false if that failed.
    pub(crate) fn interrupt(self, worker: &Remote) -> bool {
        match self {
            Mechanism::None => false,
            // Tasks check for themselves whether they were asked.
            _ if cfg!(virtual_time) => true,
            _ if worker.send() => {
                usdt::preempt_sent(worker.cpu(), worker.tid.load(Ordering::Relaxed));
                true
            }
            _ => self.signal(worker),
        }
    }

    /// Interrupts what `worker` runs by a signal: the handler of attention is called ([`hook_attention`]). Returns
    /// false if that failed.
    pub(crate) fn signal(self, worker: &Remote) -> bool {
        match worker.tid.load(Ordering::Relaxed) {
            _ if self == Mechanism::None || cfg!(virtual_time) => self != Mechanism::None,
            0 => false,
            tid => {
                let is_sent = heddle_sys::thread::signal(tid, SIGNAL);
                if is_sent {
                    usdt::preempt_sent(worker.cpu(), tid);
                }
                is_sent
            }
        }
    }
}

impl std::str::FromStr for Mechanism {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Mechanism::None),
            "signal" => Ok(Mechanism::Signal),
            "probe" => Ok(Mechanism::Probe),
            "uintr" => Ok(Mechanism::Uintr),
            "uintr-timer" => Ok(Mechanism::UintrTimer),
            _ => Err(format!("no preemption mechanism `{text}`; available: {}", Self::NAMES)),
        }
    }
}

/// Makes the signal's handler keep out of the way of user interrupts, once per process.
fn use_signal_entry() -> io::Result<()> {
    static ONCE: OnceLock<Result<(), i32>> = OnceLock::new();
    // SAFETY: it calls `on_preempt`, which is installed already.
    once(&ONCE, || unsafe { heddle_sys::signal::install(SIGNAL, entry::signal_entry, 0).map(drop) })
}

/// Calls `install` once per process. Returns what came of it each time.
fn once(
    done: &OnceLock<Result<(), i32>>,
    install: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let install = || install().map_err(|e| e.raw_os_error().unwrap_or(libc::EINVAL));
    done.get_or_init(install).map_err(io::Error::from_raw_os_error)
}

/// Makes the calling thread, that of `worker`, a receiver if the mechanism says so. Returns the timer that ends its
/// quanta then; `None`: one that sends signals.
///
/// A thread that the module has no room for is interrupted by signals.
pub(crate) fn receive(
    worker: &Worker,
    mechanism: Mechanism,
    quantum: Option<Ns>,
) -> Option<ThreadTimer> {
    if !mechanism.has_user_interrupts() {
        return None;
    }
    // SAFETY: the handler is as the call wants it; the block is behind GS.
    let receiver = match unsafe { worker.receive(entry::entry) } {
        Ok(receiver) => receiver,
        Err(error) => {
            static SAID: AtomicBool = AtomicBool::new(false);
            if !SAID.swap(true, Ordering::Relaxed) {
                report::say(format_args!(
                    "heddle: no user interrupts for some worker ({error}): it is preempted by signals"
                ));
            }
            return None;
        }
    };
    match (mechanism, quantum) {
        (Mechanism::UintrTimer, Some(quantum)) => {
            worker.tick(receiver, SHORTEST_TICK.max(Ns(quantum.0 / 2)));
            None
        }
        _ => Some(ThreadTimer::of_receiver(receiver, uintr::VECTOR)),
    }
}

/// The shortest time between two ticks of a worker's timer.
const SHORTEST_TICK: Ns = Ns::from_us(5);

/// Holds preemption off while it lives. Free in ordinary threads, two instructions in a task.
#[must_use]
pub struct NoPreempt {
    in_task: bool,
    // The count belongs to the worker that runs this context.
    _not_send: PhantomData<*mut ()>,
}

impl NoPreempt {
    /// Holds preemption off until the value is dropped, on whatever worker.
    #[inline]
    #[allow(clippy::new_without_default)]
    pub fn new() -> NoPreempt {
        let in_task = Task::current().is_some();
        if in_task {
            // SAFETY: a task runs on a worker, whose block GS points to.
            unsafe { PreemptCount::disable() };
        }
        NoPreempt { in_task, _not_send: PhantomData }
    }
}

impl NoPreempt {
    /// Ends a section of the calling task whose value was forgotten.
    pub(crate) fn end_forgotten() {
        drop(NoPreempt { in_task: Task::current().is_some(), _not_send: PhantomData });
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

/// Runs `f` without being preempted. Use it for code that holds a lock on which other tasks of the same worker would
/// block in the kernel (a C library's mutex); keep it shorter than a quantum. Calls may be nested; blocking inside is
/// allowed.
///
/// At the end the task checks the clock itself (10 ns), and if its quantum is over and others wait, yields to them
/// without being interrupted: on a virtual machine the timer and the signal cost tens of microseconds.
#[inline]
pub fn no_preempt<R>(f: impl FnOnce() -> R) -> R {
    let guard = NoPreempt::new();
    let result = f();
    if guard.in_task {
        // SAFETY: a task runs on a worker, and preemption is off.
        let look_at = unsafe { Worker::current() }.look_at.load(Ordering::Relaxed);
        if look_at != NEVER && heddle_sys::clock::ticks() >= look_at {
            look_around();
        }
    }
    result
}

/// Called at the end of a section if the calling task's quantum is over: preempts it if the policy says so.
#[cold]
fn look_around() {
    // SAFETY: a task runs on a worker. Deeper sections have an end of their own.
    if let Some(task) = Task::current().filter(|_| unsafe { PreemptCount::depth() } == 1) {
        // SAFETY: as above.
        if keeps_thread(task, unsafe { Worker::current() }) {
            return;
        }
        keeping_errno(|| leave_for(task, task.sched().look_around(task)));
    }
}

/// Runs `f` in a task and leaves the task's errno as it was: a look at sockets may be interrupted, and the task, which
/// has made a call that succeeded, would read EINTR.
pub(crate) fn keeping_errno<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the calling task's own variable, on whatever worker.
    unsafe {
        let at = libc::__errno_location();
        let errno = *at;
        let result = f();
        *at = errno;
        result
    }
}

/// Completes the switch to `task`, the calling context, which has not been a task before, and allows preemption.
///
/// # Safety
/// The caller has the task's FS, and is on a worker right after a switch.
#[inline(always)]
pub(crate) unsafe fn begin(task: &Task) {
    task.set_current();
    // SAFETY: by the caller's promise; the switch is completed first.
    unsafe {
        PreemptCount::set_depth(1);
        finish_switch();
        if PreemptCount::enable() {
            take_pending();
        }
    }
}

/// Called by the probe at the address `at` in a task, with preemption on, once the task's time to look has come.
pub(crate) extern "C" fn on_probe(at: usize) {
    let Some(task) = Task::current() else { return };
    // An allocator that was built with probes holds its lock all the same.
    if code::is_held(at) {
        return;
    }
    // SAFETY: a task runs on a worker, and stays there from here on.
    unsafe {
        PreemptCount::set_depth(1);
        Worker::current().stats.probes.add(1);
    }
    take(task, |_| false);
}

/// Answers a request that arrived while preemption was held off.
#[cold]
pub(crate) fn take_pending() {
    if let Some(task) = Task::current() {
        take(task, Worker::is_early);
    }
}

/// Makes way for others in `task`, the caller, if [`answer`] says so, and allows preemption.
#[inline(always)]
fn take(task: &'static Task, is_early: impl FnOnce(&Worker) -> bool) {
    // SAFETY: a task runs on a worker. The pending bit is reset: the context that resumes starts afresh.
    let due = unsafe {
        PreemptCount::set_depth(1);
        keeping_errno(|| leave_for(task, answer(task, is_early)));
        PreemptCount::enable()
    };
    if due {
        // A request arrived in the meantime; bounded, because each round lets every other task run first.
        take_pending();
    }
}

/// Returns what runs instead of the calling task, which was interrupted or has found that its time to look has come:
/// another context if the task was asked to yield, or if its quantum is over, which it is not if it `is_early`, and the
/// policy says so. Preemption is off.
fn answer(task: &'static Task, is_early: impl FnOnce(&Worker) -> bool) -> Option<Next> {
    // SAFETY: a task runs on a worker.
    let worker = unsafe { Worker::current() };
    if keeps_thread(task, worker) {
        return None;
    }
    // A worker that has lost its CPU queues its task for that CPU.
    let is_asked = || worker.asked.swap(false, Ordering::AcqRel);
    if is_asked() || !worker.is_attached() {
        return task.sched().answer_request(task);
    }
    if task.sched().is_cpu_wanted(worker.cpu()) {
        return task.sched().answer_request(task);
    }
    if is_early(worker) {
        return None;
    }
    task.sched().look_around(task).or_else(|| {
        // It has set the next time to look, perhaps over that of a thread which has just asked probes to look at once.
        fence(Ordering::SeqCst);
        if worker.alarm.has_grace() && is_asked() {
            task.sched().answer_request(task)
        } else {
            None
        }
    })
}

/// Returns whether `task` is to stay on the thread of `worker`, which has no CPU: it computes beside the runtime.
fn keeps_thread(task: &Task, worker: &Worker) -> bool {
    !worker.is_attached() && task.keeps_thread.load(Ordering::Relaxed)
}

/// Notes a signal that another program has caused, by a pipe, and that is not answered yet.
///
/// # Safety
/// `info` is what the kernel has passed to the handler.
unsafe fn note_program(worker: &Worker, info: *const libc::siginfo_t) {
    // Timers and threads have negative codes.
    // SAFETY: by the caller's promise.
    if unsafe { (*info).si_code } > 0 {
        worker.unanswered.store(true, Ordering::Relaxed);
    }
}

extern "C" fn on_preempt(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if is_programs(signal, info, context) == Some(true) {
        return;
    }
    let Some(task) = Task::current() else {
        if let Some(worker) = Worker::here() {
            // SAFETY: the kernel passes valid information.
            unsafe { note_program(worker, info) };
        }
        return;
    };
    // SAFETY: a task's FS is loaded only on workers, so GS points to a block; the kernel passes a valid context.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let worker = Worker::current();
        worker.stats.interrupts.add(1);
        let at = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
        if PreemptCount::depth() != 0 {
            // The pending bit is lost if the task is about to leave.
            note_program(worker, info);
            return PreemptCount::set_pending();
        }
        worker.stats.meter.on_interrupt(&task.cpu_time);
        let errno = *libc::__errno_location();
        if let Some(call) = code::interrupted_call(context)
            && gives_cpu_away(task, call)
        {
            *libc::__errno_location() = errno;
            return;
        }
        let sp = context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
        if code::is_held_in(at, sp) {
            PreemptCount::set_pending();
            worker.alarm.retry();
            *libc::__errno_location() = errno;
            return;
        }
        // This also answers a request left pending because it found the C library.
        PreemptCount::set_depth(1);
        worker.alarm.was_heard();
        if let Some(next) = answer(task, Worker::is_early) {
            worker.alarm.was_needed();
            // The next task must be interruptible again. The kernel restores the mask when it resumes this task.
            heddle_sys::signal::unblock(SIGNAL);
            uintr::allow();
            leave(task, next);
            uintr::hold_off();
        }
        // Returning restores the frame's alternate stack: it must be that of the worker on which we are now.
        context.uc_stack = Worker::current().altstack.get();
        *libc::__errno_location() = errno;
        if PreemptCount::enable() {
            take_pending_in_handler(task);
        }
        attend(at, context);
    }
}

/// Answers, in a handler, a request that arrived while the handler held preemption off.
fn take_pending_in_handler(task: &'static Task) {
    loop {
        // SAFETY: a task runs on a worker. In a handler user interrupts are held off where preemption is not.
        let due = unsafe {
            PreemptCount::set_depth(1);
            uintr::allow();
            keeping_errno(|| leave_for(task, answer(task, Worker::is_early)));
            uintr::hold_off();
            PreemptCount::enable()
        };
        if !due {
            return;
        }
    }
}

/// The signal's handler where it has interrupted that of a user interrupt, which answers.
extern "C" fn on_preempt_inside(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    if is_programs(signal, info, context) == Some(true) || Task::current().is_none() {
        return;
    }
    // SAFETY: a task runs on a worker; the kernel passes valid information.
    unsafe {
        note_program(Worker::current(), info);
        PreemptCount::set_pending();
    }
}

/// The handler of user interrupts, behind [`entry::entry`]: the calling task, in which preemption is on, was
/// interrupted at the address `at` with the stack pointer `sp`. User interrupts are held off.
extern "C" fn on_user_interrupt(at: usize, sp: usize) {
    let Some(task) = Task::current() else { return };
    // SAFETY: a task runs on a worker. Its stack pointer is valid.
    unsafe {
        let worker = Worker::current();
        worker.stats.interrupts.add(1);
        worker.stats.meter.on_interrupt(&task.cpu_time);
        if code::is_held_in(at, sp) || entry::is_signals(at) {
            PreemptCount::set_pending();
            return keeping_errno(|| worker.alarm.retry());
        }
        PreemptCount::set_depth(1);
        worker.alarm.was_heard();
        keeping_errno(|| {
            if let Some(next) = answer(task, Worker::is_early) {
                worker.alarm.was_needed();
                uintr::allow();
                leave(task, next);
                uintr::hold_off();
            }
        });
        if PreemptCount::enable() {
            take_pending_in_handler(task);
        }
    }
}

/// `task` was interrupted in a system call in which it slept. Returns whether it goes on there: without a CPU, now or
/// soon.
fn gives_cpu_away(task: &'static Task, call: Blocked) -> bool {
    // SAFETY: a task runs on a worker. What becomes pending meanwhile is answered when it computes.
    unsafe {
        PreemptCount::set_depth(1);
        let is_gone = task.sched().give_cpu_away(task, call);
        let _ = PreemptCount::enable();
        if is_gone && Worker::current().is_attached() {
            // Left to the ticker, which interrupts it again if it computes instead of sleeping on.
            PreemptCount::set_pending();
        }
        is_gone
    }
}

/// A thread library's look at what other threads have asked of a task; see [`hook_attention`].
static ATTENTION: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Makes `look` be called in each task that a signal has interrupted, whether or not it was preempted, with the address
/// of the interrupted instruction and the signal's context: with preemption on, in the handler of the signal, which the
/// kernel holds back until then, before the task goes on. `look` may leave the handler by unwinding if the interrupted
/// code can be unwound from that instruction; it allows preemption first ([`crate::raw::allow_preemption`]).
pub fn hook_attention(look: fn(usize, *mut libc::ucontext_t)) {
    ATTENTION.store(look as *mut (), Ordering::Release);
}

fn attend(at: usize, context: &mut libc::ucontext_t) {
    let hook = ATTENTION.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: `hook_attention` stored a function of this type.
        let look: fn(usize, *mut libc::ucontext_t) = unsafe { std::mem::transmute(hook) };
        look(at, context);
    }
}

/// What a thread library makes of a signal.
pub type Look = fn(i32, *mut libc::siginfo_t, *mut libc::c_void) -> bool;

/// A thread library's look at the signals that the runtime handles; see [`hook_signals`].
static SIGNALS: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Makes `look` be called first for each signal that the runtime handles, on every thread. It returns whether the
/// signal was the program's and needs nothing more. It leaves errno as it was.
pub fn hook_signals(look: Look) {
    SIGNALS.store(look as *mut (), Ordering::Release);
}

/// Returns what the thread library says; `None` if there is none.
fn is_programs(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) -> Option<bool> {
    let hook = SIGNALS.load(Ordering::Acquire);
    // SAFETY: `hook_signals` stored a function of this type.
    (!hook.is_null())
        .then(|| unsafe { std::mem::transmute::<*mut (), Look>(hook) }(signal, info, context))
}

/// The signals that workers hold back; 0: those that they inherit.
static WORKERS_MASK: AtomicU64 = AtomicU64::new(0);

/// Makes every worker that starts from here on hold back the signals of `mask`, in the kernel's form.
pub fn set_workers_mask(mask: u64) {
    WORKERS_MASK.store(mask, Ordering::Release);
}

/// Prepares the calling thread, a worker, for signals.
pub(crate) fn prepare_worker() {
    match WORKERS_MASK.load(Ordering::Acquire) {
        0 => heddle_sys::signal::unblock(SIGNAL),
        mask => drop(heddle_sys::signal::change_mask(libc::SIG_SETMASK, mask)),
    }
}

struct Action(heddle_sys::signal::Previous);
// SAFETY: a plain description of an action.
unsafe impl Send for Action {}
// SAFETY: as above.
unsafe impl Sync for Action {}
static PREVIOUS_FAULT: OnceLock<Action> = OnceLock::new();

/// Reports the task whose stack has overflowed; passes any other fault on.
extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let programs = is_programs(signal, info, context);
    if programs == Some(true) {
        return;
    }
    // SAFETY: the kernel passes a valid description.
    let at = unsafe { (*info).si_addr() } as usize;
    if let Some(task) = Task::current() {
        // SAFETY: the kernel passes a valid context.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        if is_overflow(task, at, registers[libc::REG_RSP as usize] as usize) {
            usdt::stack_overflow(task.id().0, at, task.stack.size);
            report_overflow(task);
        }
    }
    match programs {
        // The instruction faults again, with our handler gone.
        Some(_) => heddle_sys::signal::set_default(signal),
        None => pass_on(signal, info, context),
    }
}

/// Returns whether a fault at address `at` with this stack pointer means a stack overflow.
fn is_overflow(task: &Task, at: usize, sp: usize) -> bool {
    let (base, end) = (task.stack.base, task.stack.base + GUARD);
    // A frame larger than the guard may land just below it.
    let in_guard = (base - GUARD..end).contains(&at);
    // The kernel had no room for a signal frame; in that case it reports no address.
    let no_room =
        at == 0 && (base..end + heddle_sys::memory::signal_frame_size() + 256).contains(&sp);
    in_guard || no_room
}

fn report_overflow(task: &Task) -> ! {
    let name = task.name().unwrap_or("without a name");
    let kib = task.stack.size >> 10;
    match task.is_adopted() {
        true => report::say(format_args!(
            "\nheddle: the program's first thread has overflowed its stack of {kib} KiB; `ulimit -s` sets its size"
        )),
        false => report::say(format_args!(
            "\nheddle: {} ({name}) has overflowed its stack of {kib} KiB; give it a larger one with \
             Builder::stack_size, or the runtime with HEDDLE_STACK_SIZE",
            task.id()
        )),
    }
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
        // The instruction faults again, with our handler gone.
        heddle_sys::signal::restore(signal, previous);
        return;
    }
    // SAFETY: an installed three-argument handler.
    unsafe {
        let handler: heddle_sys::signal::Handler = std::mem::transmute(handler);
        handler(signal, info, context);
    }
}
