//! What the program does with each signal: `sigaction` and its relatives.
//!
//! The table here is the truth. The kernel has the program's action with our trampoline for the handler, except for the
//! two signals that the runtime handles itself once it runs: those come by way of [`super::on_signal`].

use super::{
    FAULTS, Quiet, Set, UNBLOCKABLE, frames, kernel_default, queue, raise_default, receiver,
};
use crate::cancel::Attended;
use crate::errno;
use crate::real::real;
use crate::report;
use crate::start;
use crate::thread::Thread;
use heddle_rt::raw::{self, Caller};
use heddle_sync::SpinLock;
use heddle_sys::signal::bit;
use libc::{sighandler_t, siginfo_t, ucontext_t};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::hint::spin_loop;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// The number of signals.
pub(super) const SIGNALS: c_int = 64;

/// What is done with a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Action {
    /// A function, SIG_DFL or SIG_IGN.
    pub(super) handler: usize,
    pub(super) flags: c_int,
    pub(super) mask: Set,
}

/// What an action amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing happens, or the kernel has seen to it.
    Ignored,
    /// It ends or stops the process.
    Default,
    Handled,
}

impl Action {
    pub(super) fn kind(&self, signal: c_int) -> Kind {
        let harmless = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT];
        match self.handler {
            libc::SIG_IGN => Kind::Ignored,
            libc::SIG_DFL if harmless.contains(&signal) => Kind::Ignored,
            libc::SIG_DFL => Kind::Default,
            _ => Kind::Handled,
        }
    }

    pub(super) fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    /// Returns whether interrupted calls go on after its handler.
    pub(super) fn restarts(&self) -> bool {
        self.has(libc::SA_RESTART)
    }

    fn of(action: &libc::sigaction) -> Action {
        Action {
            handler: action.sa_sigaction,
            flags: action.sa_flags,
            mask: set_of(&action.sa_mask) & !UNBLOCKABLE,
        }
    }

    /// Returns it in the C library's form, with another handler.
    fn with_handler(&self, handler: usize, flags: c_int) -> libc::sigaction {
        // SAFETY: all-zero is a valid action.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        store_set(&mut action.sa_mask, self.mask);
        action
    }
}

/// Returns the kernel's part of the C library's set.
pub(super) fn set_of(set: &libc::sigset_t) -> Set {
    // SAFETY: it begins with the kernel's 8 bytes.
    unsafe { ptr::from_ref(set).cast::<Set>().read_unaligned() }
}

/// Writes the kernel's part of the C library's set.
pub(super) fn store_set(to: &mut libc::sigset_t, set: Set) {
    // SAFETY: as above.
    unsafe { ptr::from_mut(to).cast::<Set>().write_unaligned(set) };
}

/// An entry of the table: a sequence lock, which handlers can read.
struct Row {
    /// Odd while it is written.
    version: AtomicU32,
    /// Whether the program, or a question of its, has filled it in.
    is_known: AtomicBool,
    /// Set by `siginterrupt`: `signal` installs handlers that interrupt calls.
    interrupts: AtomicBool,
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

static LOCK: SpinLock = SpinLock::new();
static ROWS: [Row; SIGNALS as usize] = [const {
    Row {
        version: AtomicU32::new(0),
        is_known: AtomicBool::new(false),
        interrupts: AtomicBool::new(false),
        handler: AtomicUsize::new(0),
        flags: AtomicI32::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS as usize];

pub(super) fn lock() {
    LOCK.lock();
}

pub(super) fn unlock() {
    LOCK.unlock();
}

impl Row {
    fn of(signal: c_int) -> &'static Row {
        &ROWS[signal as usize - 1]
    }

    fn read(&self) -> Action {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let action = Action {
                handler: self.handler.load(Ordering::Relaxed),
                flags: self.flags.load(Ordering::Relaxed),
                mask: self.mask.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return action;
            }
            spin_loop();
        }
    }

    /// The lock is held.
    fn write(&self, action: &Action) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.handler.store(action.handler, Ordering::Relaxed);
        self.flags.store(action.flags, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
        self.is_known.store(true, Ordering::Release);
    }
}

/// Returns the program's action for `signal`, which exists.
pub(super) fn get(signal: c_int) -> Action {
    let row = Row::of(signal);
    if !row.is_known.load(Ordering::Acquire) {
        learn(signal);
    }
    row.read()
}

/// Fills in what the program has inherited, or was installed behind our back.
#[cold]
fn learn(signal: c_int) {
    // SAFETY: all-zero is room for an action.
    let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a valid result.
    if unsafe { real_sigaction(signal, ptr::null(), &mut found) } != 0 {
        return;
    }
    let _quiet = Quiet::new();
    lock();
    let row = Row::of(signal);
    if !row.is_known.load(Ordering::Relaxed) {
        let is_runtimes =
            is_the_runtimes(signal) || found.sa_sigaction == trampoline as *const () as usize;
        row.write(&if is_runtimes { DEFAULT } else { Action::of(&found) });
    }
    unlock();
}

const DEFAULT: Action = Action { handler: libc::SIG_DFL, flags: 0, mask: 0 };

/// Gives `signal` its default action: the handler that is about to run was for once.
pub(super) fn reset(signal: c_int) {
    let _quiet = Quiet::new();
    lock();
    Row::of(signal).write(&DEFAULT);
    if !is_the_runtimes(signal) {
        set_kernel_default(signal);
    }
    unlock();
}

/// Whether SIGQUIT, if the program leaves it alone, prints a report and does not end the process.
static REPORTS: AtomicBool = AtomicBool::new(false);

/// Makes SIGQUIT, as long as the program leaves it alone, print a report; or end the process, as ever.
pub(crate) fn report_at_quit(reports: bool) {
    if REPORTS.swap(reports, Ordering::Relaxed) == reports {
        return;
    }
    // Before the kernel has another one.
    let action = get(libc::SIGQUIT);
    let _quiet = Quiet::new();
    lock();
    if kernel_default(&action) {
        set_kernel_default(libc::SIGQUIT);
    }
    unlock();
}

/// Returns whether the default action of `signal` is a report.
fn is_quit(signal: c_int) -> bool {
    signal == libc::SIGQUIT && REPORTS.load(Ordering::Relaxed)
}

/// Asks for a report if that is the default action of `signal`. Returns whether it is.
pub(super) fn report_instead(signal: c_int) -> bool {
    let is_report = is_quit(signal);
    if is_report {
        report::on_quit();
    }
    is_report
}

extern "C" fn on_quit(signal: c_int) {
    report_instead(signal);
}

/// Gives `signal` its default action in the kernel.
fn set_kernel_default(signal: c_int) {
    if is_quit(signal) {
        let action = DEFAULT.with_handler(on_quit as *const () as usize, libc::SA_RESTART);
        // SAFETY: a valid action, whose handler only asks another thread.
        unsafe { real_sigaction(signal, &action, ptr::null_mut()) };
    } else {
        heddle_sys::signal::set_default(signal);
    }
}

/// Returns whether the kernel has the runtime's handler for `signal`.
fn is_the_runtimes(signal: c_int) -> bool {
    start::has_started() && matches!(signal, raw::PREEMPT_SIGNAL | libc::SIGSEGV)
}

unsafe fn real_sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the function has this type; the caller's contract.
    unsafe {
        real!(sigaction(
            signal: c_int,
            new: *const libc::sigaction,
            old: *mut libc::sigaction,
        ) -> c_int)
    }
}

/// Gives the kernel the program's action. Returns false with `errno` set if it refuses it.
///
/// # Safety
/// The action is the program's, whose handler keeps its contract.
unsafe fn install_in_kernel(signal: c_int, new: &Action) -> bool {
    if kernel_default(new) && is_quit(signal) {
        set_kernel_default(signal);
        return true;
    }
    let handler = match new.handler {
        plain @ (libc::SIG_DFL | libc::SIG_IGN) => plain,
        _ => trampoline as *const () as usize,
    };
    // `SA_RESETHAND` is ours: a handler may run later than the kernel would reset it.
    let flags = match new.kind(signal) {
        Kind::Handled => (new.flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND,
        _ => new.flags,
    };
    let action = new.with_handler(handler, flags);
    // SAFETY: a valid action; the caller's promise.
    unsafe { real_sigaction(signal, &action, ptr::null_mut()) == 0 }
}

/// Installs `new`. Returns the previous action.
fn replace(signal: c_int, new: Option<&Action>) -> Result<Action, c_int> {
    let is_reserved = !(1..=SIGNALS).contains(&signal) || matches!(signal, 32 | 33);
    let is_fixed = matches!(signal, libc::SIGKILL | libc::SIGSTOP);
    if is_reserved || is_fixed && new.is_some() {
        return Err(libc::EINVAL);
    }
    let old = get(signal);
    let Some(new) = new else { return Ok(old) };
    let quiet = Quiet::new();
    lock();
    let row = Row::of(signal);
    let old = if row.is_known.load(Ordering::Relaxed) { row.read() } else { old };
    row.write(new);
    let mut failed = None;
    // SAFETY: the program's action.
    if !is_the_runtimes(signal) && !unsafe { install_in_kernel(signal, new) } {
        row.write(&old);
        failed = Some(errno::get());
    }
    unlock();
    drop(quiet);
    if let Some(error) = failed {
        return Err(error);
    }
    if new.kind(signal) == Kind::Ignored && start::has_started() {
        queue::discard_all(signal);
    }
    Ok(old)
}

thread_local! {
    /// What the last handler did that ran in this kernel thread.
    static LAST: Cell<Attended> = const { Cell::new(Attended::Nothing) };
    /// How many handlers have begun in this kernel thread and not returned: more than there are if one has jumped out.
    static RUNNING: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether the calling kernel thread runs a handler, or may.
pub(super) fn is_in_kernel() -> bool {
    RUNNING.get() != 0
}

/// Returns what the last handler did in this kernel thread, once.
pub(super) fn last_in_kernel() -> Attended {
    LAST.replace(Attended::Nothing)
}

/// The kernel's handler for every signal that the program handles.
extern "C-unwind" fn trampoline(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let context = context.cast::<ucontext_t>();
    if !raw::is_worker() {
        if !run_in_kernel_thread(signal, info, context) && kernel_default(&get(signal)) {
            raise_default(signal);
        }
        return;
    }
    // SAFETY: the kernel passes a valid description.
    let (code, sender) = unsafe { ((*info).si_code, (*info).si_pid()) };
    // `abort` unblocks its signal and raises it by the system call.
    // SAFETY: no arguments.
    let aborts =
        signal == libc::SIGABRT && code == libc::SI_TKILL && sender == unsafe { libc::getpid() };
    if !(aborts || code > 0 && FAULTS & bit(signal) != 0) {
        return receiver::forward(info);
    }
    let handled =
        Thread::current().is_some_and(|thread| frames::fault(thread, signal, info, context));
    if !handled {
        // A fault comes again, with our handler gone.
        heddle_sys::signal::set_default(signal);
        if aborts || signal == libc::SIGTRAP {
            raise_default(signal);
        }
    }
}

/// Runs the program's handler in place, in a kernel thread that is no worker. Returns whether there is one.
pub(super) fn run_in_kernel_thread(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut ucontext_t,
) -> bool {
    let action = get(signal);
    if action.kind(signal) != Kind::Handled {
        return action.kind(signal) == Kind::Ignored && FAULTS & bit(signal) == 0;
    }
    if action.has(libc::SA_RESETHAND) {
        reset(signal);
    }
    // SAFETY: the kernel's description, in the frame of the caller, a handler.
    queue::restore(unsafe { &mut *info });
    LAST.set(if action.restarts() { Attended::Restart } else { Attended::Interrupt });
    // SAFETY: the program's handler; one with a single parameter ignores the others.
    unsafe {
        let handler: frames::Handler = std::mem::transmute(action.handler);
        RUNNING.set(RUNNING.get() + 1);
        handler(signal, info, context.cast());
        RUNNING.set(RUNNING.get() - 1);
    }
    true
}

/// POSIX's `sigaction`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if start::is_starting() || Caller::here() == Caller::Runtime {
        // SAFETY: the caller's contract.
        return unsafe { real_sigaction(signal, new, old) };
    }
    // SAFETY: the caller's pointers are null or valid.
    let wanted = unsafe { new.as_ref() }.map(Action::of);
    match replace(signal, wanted.as_ref()) {
        Ok(previous) => {
            if !old.is_null() {
                let flags = previous.flags;
                // SAFETY: as above.
                unsafe { old.write(previous.with_handler(previous.handler, flags)) };
            }
            0
        }
        Err(error) => errno::fail(error),
    }
}

/// glibc's other name of `sigaction`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { sigaction(signal, new, old) }
}

fn install(signal: c_int, handler: sighandler_t, flags: c_int, mask: Set) -> sighandler_t {
    match replace(signal, Some(&Action { handler, flags, mask })) {
        Ok(old) => old.handler,
        Err(error) => {
            errno::set(error);
            libc::SIG_ERR
        }
    }
}

/// C's `signal`, as in BSD: the handler stays, the signal is blocked while it runs, and calls go on after it.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    if !(1..=SIGNALS).contains(&signal) || handler == libc::SIG_ERR {
        errno::set(libc::EINVAL);
        return libc::SIG_ERR;
    }
    let interrupts = Row::of(signal).interrupts.load(Ordering::Relaxed);
    let flags = if interrupts { 0 } else { libc::SA_RESTART };
    install(signal, handler, flags, bit(signal))
}

/// glibc's other name of `signal`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's contract.
    unsafe { signal(number, handler) }
}

/// glibc's other name of `signal`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssignal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's contract.
    unsafe { signal(number, handler) }
}

/// `signal` as in System V: for once, with nothing blocked.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    if handler == libc::SIG_ERR {
        errno::set(libc::EINVAL);
        return libc::SIG_ERR;
    }
    install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, 0)
}

/// glibc's other name of `sysv_signal`, by which strict C programs know `signal`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller's contract.
    unsafe { sysv_signal(signal, handler) }
}

/// POSIX's `siginterrupt`.
#[unsafe(no_mangle)]
pub extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    let action = match replace(signal, None) {
        Ok(action) => action,
        Err(error) => return errno::fail(error),
    };
    Row::of(signal).interrupts.store(interrupts != 0, Ordering::Relaxed);
    let flags = match interrupts {
        0 => action.flags | libc::SA_RESTART,
        _ => action.flags & !libc::SA_RESTART,
    };
    match replace(signal, Some(&Action { flags, ..action })) {
        Ok(_) => 0,
        Err(error) => errno::fail(error),
    }
}

/// POSIX's `sigignore`.
#[unsafe(no_mangle)]
pub extern "C" fn sigignore(signal: c_int) -> c_int {
    match replace(signal, Some(&Action { handler: libc::SIG_IGN, ..DEFAULT })) {
        Ok(_) => 0,
        Err(error) => errno::fail(error),
    }
}

/// POSIX's `sigset`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    /// Block the signal instead.
    const SIG_HOLD: sighandler_t = 2;
    if handler == libc::SIG_ERR || !(1..=SIGNALS).contains(&signal) {
        errno::set(libc::EINVAL);
        return libc::SIG_ERR;
    }
    let was_held = super::own_mask() & bit(signal) != 0;
    let old = match handler {
        SIG_HOLD => replace(signal, None).map(|old| old.handler),
        _ => replace(signal, Some(&Action { handler, ..DEFAULT })).map(|old| old.handler),
    };
    let how = if handler == SIG_HOLD { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    match old {
        Err(error) => {
            errno::set(error);
            libc::SIG_ERR
        }
        Ok(old) => {
            super::masks::change(how, bit(signal));
            if was_held { SIG_HOLD } else { old }
        }
    }
}
