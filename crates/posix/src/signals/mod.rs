//! Signals of threads that are tasks.
//!
//! # Who gets a signal
//!
//! A task has a mask and a set of pending signals of its own, in its [`Thread`]. Workers hold back every signal in the
//! kernel but the runtime's own and faults, all of them the same: what the C library saves and restores inside (in
//! `sigsetjmp`, in a handler's frame) is the same on each worker. Kernel threads keep their real masks, and the kernel
//! runs handlers in them, by way of [`actions`]' trampoline.
//!
//! - A signal for a task (`pthread_kill`, `raise`) is queued in [`queue`], and the task asked to attend.
//! - A signal for the process goes to a kernel thread of the program's that accepts it, as ever. If there is none, the
//!   [`receiver`] takes it with `sigtimedwait` and gives it to a task that accepts it: to the program's first thread
//!   rather than to others, as the kernel does. If there is no such task, it gives the signal back, where it stays
//!   pending for the process, and takes that kind no more until a task unblocks it. The receiver is the first thread's
//!   kernel thread ([`first`]), which also gets what is sent to that thread by number, or, if the first thread is no
//!   task, a thread of ours.
//! - A fault is handled at once, in the task that caused it ([`frames`]).
//!
//! # Where handlers run
//!
//! In the task, as its ordinary code: preemptible, on whatever worker. A task that waits runs them when its wait has
//! been interrupted ([`crate::cancel::attend`]); a task that computes is interrupted, and runs them on top of the
//! interrupted frame, unless it is in the C library, in this library or holds preemption off: then it is interrupted
//! again, by the receiver, a millisecond later, until it is not.

pub(crate) mod actions;
pub(crate) mod first;
mod frames;
mod masks;
mod queue;
pub(crate) mod receiver;
pub(crate) mod send;
mod waits;

use crate::cancel::Attended;
use crate::image::is_own_code;
use crate::start;
use crate::sys::syscall;
use crate::thread::Thread;
use crate::wait::Attend;
use actions::{Action, Kind};
use heddle_rt::raw::{self, Caller, NoPreempt};
use heddle_sys::signal::{bit, change_mask};
use libc::{siginfo_t, ucontext_t};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A set of signals in the kernel's form.
pub(crate) type Set = u64;

/// Never blocked: the kernel's two, and the C library's own two.
const UNBLOCKABLE: Set = bit(libc::SIGKILL) | bit(libc::SIGSTOP) | bit(32) | bit(33);

/// Faults, which the kernel cannot hold back.
const FAULTS: Set = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS);

/// What a worker holds back. Not SIGTTIN: a read from the terminal of another job would fail instead of stopping the
/// process.
const WORKERS: Set = !(FAULTS | bit(raw::PREEMPT_SIGNAL) | bit(libc::SIGTTIN) | UNBLOCKABLE);

/// What a [`Thread`] knows of signals.
pub(crate) struct State {
    /// Blocked signals; all of them while there is no thread. Written by the thread itself.
    mask: AtomicU64,
    /// Signals in the queue for this thread.
    pending: AtomicU64,
    /// What it waits for in `sigwait`.
    awaited: AtomicU64,
    /// How many handlers it has run.
    ran: Cell<u64>,
    /// The handlers that it runs, the innermost first.
    frames: Cell<*const frames::Frame>,
    /// Its alternate stack: lowest address and size, 0 without one.
    altstack: Cell<(usize, usize)>,
}

impl State {
    pub(crate) const fn new() -> State {
        State {
            mask: AtomicU64::new(!0),
            pending: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            ran: Cell::new(0),
            frames: Cell::new(ptr::null()),
            altstack: Cell::new((0, 0)),
        }
    }

    fn accepts(&self, signal: c_int) -> bool {
        self.mask.load(Ordering::SeqCst) & bit(signal) == 0
    }

    fn awaits(&self, signal: c_int) -> bool {
        self.awaited.load(Ordering::SeqCst) & bit(signal) != 0
    }
}

/// Prepares `thread`, which does not run yet, with the mask of the caller, which creates it.
pub(crate) fn begin(thread: &Thread) {
    let state = &thread.signals;
    state.ran.set(0);
    state.frames.set(ptr::null());
    state.altstack.set((0, 0));
    let mask = own_mask() & !UNBLOCKABLE;
    state.mask.store(mask, Ordering::SeqCst);
    receiver::opened(!mask);
}

/// Lets go of the signals of `thread`, the caller, which ends: those for the process go to others.
pub(crate) fn end(thread: &Thread) {
    thread.signals.mask.store(!0, Ordering::SeqCst);
    queue::leave(thread, !0);
    queue::discard(thread);
}

/// Returns the mask of the calling thread.
pub(crate) fn own_mask() -> Set {
    match Thread::current() {
        Some(thread) => thread.signals.mask.load(Ordering::Relaxed),
        None => change_mask(libc::SIG_BLOCK, 0),
    }
}

/// Runs `f` with the calling thread's own mask in the kernel, too: what `f` makes inherits it. The caller is not
/// preempted meanwhile.
pub(crate) fn with_own_mask<R>(f: impl FnOnce() -> R) -> R {
    let Some(thread) = Thread::current() else { return f() };
    let _guard = NoPreempt::new();
    let mask = thread.signals.mask.load(Ordering::Relaxed) & !(bit(raw::PREEMPT_SIGNAL) | FAULTS);
    let previous = change_mask(libc::SIG_SETMASK, mask);
    let result = f();
    change_mask(libc::SIG_SETMASK, previous);
    result
}

/// Changes the mask of `thread`, the caller, and lets it have what is sent to the process.
fn set_mask(thread: &Thread, mask: Set) {
    let opened = change_own_mask(thread, mask);
    if opened != 0 {
        receiver::opened(opened);
    }
}

/// Changes the mask of `thread`, the caller. Returns what it accepts now and did not before, for [`receiver::opened`].
fn change_own_mask(thread: &Thread, mask: Set) -> Set {
    let mask = mask & !UNBLOCKABLE;
    let before = thread.signals.mask.swap(mask, Ordering::SeqCst);
    if thread.signals.pending.load(Ordering::SeqCst) & mask & !before != 0 {
        queue::leave(thread, mask);
    }
    before & !mask
}

/// Takes what is pending for the process among `signals`, for `thread`, the caller.
fn fetch(thread: &'static Thread, signals: Set) {
    if signals == 0 {
        return;
    }
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: all-zero is room for a description; the pointers are valid for the call.
    unsafe {
        let mut info: siginfo_t = std::mem::zeroed();
        let wait = libc::SYS_rt_sigtimedwait;
        while syscall!(wait, &raw const signals, &raw mut info, &raw const at_once, 8) > 0 {
            queue::restore(&mut info);
            let _ = queue::push(thread, &info, true);
        }
    }
}

/// Runs the handlers of the signals that `thread`, the caller, accepts. They see `context`, or, if it is null, one made
/// for them. The caller is a task that may park.
fn deliver(thread: &'static Thread, context: *mut ucontext_t) -> Attended {
    thread.take(Thread::SIGNAL);
    let mut attended = Attended::Nothing;
    while let Some(mut info) = queue::pop(thread, !thread.signals.mask.load(Ordering::Relaxed)) {
        let action = actions::get(info.si_signo);
        match action.kind(info.si_signo) {
            Kind::Ignored => {}
            Kind::Default => raise_default(info.si_signo),
            Kind::Handled => {
                frames::run(thread, &action, &mut info, context);
                attended = match (attended, action.restarts()) {
                    (Attended::Interrupt, _) | (_, false) => Attended::Interrupt,
                    _ => Attended::Restart,
                };
            }
        }
    }
    attended
}

/// Sends a signal, which exists, to a task.
fn post(thread: &'static Thread, info: &siginfo_t) -> Result<(), c_int> {
    let signal = info.si_signo;
    let state = &thread.signals;
    let accepts = state.accepts(signal);
    if accepts && !state.awaits(signal) {
        match actions::get(signal).kind(signal) {
            Kind::Ignored => return Ok(()),
            Kind::Default => {
                raise_default(signal);
                return Ok(());
            }
            Kind::Handled => {}
        }
    }
    if queue::push(thread, info, false) == queue::Pushed::Full {
        return Err(libc::EAGAIN);
    }
    // It may have unblocked it meanwhile.
    if !state.accepts(signal) && !state.awaits(signal) {
        return Ok(());
    }
    let is_own = Thread::current().is_some_and(|own| ptr::eq(own, thread));
    if is_own && Caller::here() == Caller::Task {
        deliver(thread, ptr::null_mut());
    } else {
        thread.ask(Thread::SIGNAL);
    }
    Ok(())
}

/// Runs the handlers that wait for the calling thread, a task that may park.
pub(crate) fn attend(thread: &'static Thread) -> Attended {
    deliver(thread, ptr::null_mut())
}

/// Returns what the handler did that interrupted a kernel thread's wait just now.
pub(crate) fn attended_in_kernel() -> Attended {
    actions::last_in_kernel()
}

/// Does to the process what `signal` does without a handler, by the calling kernel thread. Returns if that is nothing,
/// or a report.
fn raise_default(signal: c_int) {
    if actions::report_instead(signal) {
        return;
    }
    heddle_sys::signal::set_default(signal);
    let set = bit(signal);
    let _guard = NoPreempt::new();
    let previous = change_mask(libc::SIG_UNBLOCK, set);
    // SAFETY: plain system calls.
    unsafe { syscall!(libc::SYS_tgkill, libc::getpid(), crate::sys::gettid(), signal) };
    change_mask(libc::SIG_SETMASK, previous);
}

/// Called in a task that was interrupted at `address` and may park, in the runtime's handler. The kernel holds the
/// runtime's signal back until it is unblocked.
pub(crate) fn on_attention(address: usize, context: *mut ucontext_t) {
    let Some(thread) = Thread::current() else { return };
    let is_signal = thread.is_asked(Thread::SIGNAL);
    let is_end = thread.cancel_async.load(Ordering::Relaxed) && crate::cancel::is_requested();
    if !(is_signal || is_end) || raw::is_held() {
        return;
    }
    if is_own_code(address) {
        return raw::interrupt_again();
    }
    // The handlers may take long, and the task may go to other workers.
    frames::keep_altstack(context);
    raw::allow_preemption();
    if is_signal {
        deliver(thread, context);
    }
    if thread.cancel_async.load(Ordering::Relaxed) && crate::cancel::is_requested() {
        crate::cancel::attend(Attend::Cancel);
    }
}

/// Called first for each signal that the runtime handles: returns whether it was the program's.
fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: the kernel passes valid descriptions.
    let (code, context) = unsafe { ((*info).si_code, context.cast::<ucontext_t>()) };
    if !raw::is_worker() {
        return actions::run_in_kernel_thread(signal, info, context);
    }
    if signal == raw::PREEMPT_SIGNAL {
        // SAFETY: as above.
        let is_own = unsafe {
            code == libc::SI_TIMER
                || code == libc::SI_TKILL && (*info).si_pid() == libc::getpid()
                || code == raw::ASKED
        };
        if is_own {
            waits::interrupt_call(context);
        } else {
            receiver::forward(info);
        }
        return !is_own;
    }
    if code <= 0 {
        receiver::forward(info);
        return true;
    }
    Thread::current().is_some_and(|thread| frames::fault(thread, signal, info, context))
}

/// Starts the runtime by `start`, with what signals need around it; the [`receiver`] comes after that.
pub(crate) fn start_with(start: impl FnOnce()) {
    raw::set_workers_mask(WORKERS);
    // The runtime's threads inherit this, and must not run the program's handlers.
    let previous = change_mask(libc::SIG_SETMASK, WORKERS);
    start();
    raw::hook_signals(on_signal);
    raw::hook_attention(on_attention);
    change_mask(libc::SIG_SETMASK, previous);
}

/// Holds back signals and preemption while it lives: its owner holds a lock that handlers need.
#[must_use]
struct Quiet {
    previous: Option<Set>,
    _guard: NoPreempt,
}

impl Quiet {
    fn new() -> Quiet {
        let guard = NoPreempt::new();
        // Workers hold everything back already.
        let previous = Thread::current()
            .is_none()
            .then(|| change_mask(libc::SIG_BLOCK, !FAULTS & !UNBLOCKABLE));
        Quiet { previous, _guard: guard }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(previous) = self.previous {
            change_mask(libc::SIG_SETMASK, previous);
        }
    }
}

/// Prepares for a fork: no other thread holds a lock of this module until [`end_fork`].
pub(crate) fn before_fork() {
    actions::lock();
    queue::lock();
}

/// Undoes [`before_fork`], in the parent and in the child.
pub(crate) fn end_fork() {
    queue::unlock();
    actions::unlock();
}

/// In the child of a fork: makes what the calling thread's record says, if it was a task, true in the kernel. Returns
/// the mask that it had.
pub(crate) fn after_fork(thread: Option<&'static Thread>) -> Option<Set> {
    queue::clear();
    receiver::forget();
    let thread = thread?;
    let (sp, size) = thread.signals.altstack.get();
    if size > 0 {
        let stack = libc::stack_t { ss_sp: sp as *mut c_void, ss_flags: 0, ss_size: size };
        // SAFETY: the program's stack, for the thread that it was given for.
        unsafe { syscall!(libc::SYS_sigaltstack, &raw const stack, 0) };
    }
    Some(thread.signals.mask.swap(!0, Ordering::SeqCst))
}

/// Returns whether a signal of the program's may go to tasks by now.
fn is_on() -> bool {
    start::has_started()
}

/// An action that the kernel knows to be this.
fn kernel_default(action: &Action) -> bool {
    action.handler == libc::SIG_DFL
}
