//! Waiting for signals.

use super::actions::set_of;
use super::{Set, UNBLOCKABLE, deliver, masks, queue};
use crate::cancel;
use crate::clock;
use crate::errno;
use crate::real::real;
use crate::sys::syscall;
use crate::thread::Thread;
use crate::wait::Attend;
use heddle_core::Ns;
use heddle_rt::raw::{self, Caller};
use heddle_sys::signal::bit;
use libc::{siginfo_t, sigset_t, timespec, ucontext_t};
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::Ordering;

/// Returns the calling thread's record if it waits as a task.
fn as_task() -> Option<&'static Thread> {
    Thread::current().filter(|_| Caller::here() == Caller::Task)
}

/// Waits, with `mask` if there is one, until a handler has run.
fn suspend(thread: &'static Thread, mask: Option<Set>) -> c_int {
    cancel::point();
    let old = thread.signals.mask.load(Ordering::Relaxed);
    let before = thread.signals.ran.get();
    if let Some(mask) = mask {
        masks::adopt(thread, mask);
    }
    deliver(thread, ptr::null_mut());
    while thread.signals.ran.get() == before {
        if thread.must_attend(Attend::Cancel) {
            cancel::attend(Attend::Cancel);
        } else {
            raw::park(None);
        }
    }
    if mask.is_some() {
        masks::adopt(thread, old);
    }
    errno::fail(libc::EINTR)
}

/// POSIX's `sigsuspend`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigsuspend(mask: *const sigset_t) -> c_int {
    match as_task() {
        // SAFETY: the caller's set.
        Some(thread) => suspend(thread, Some(set_of(unsafe { &*mask }))),
        // SAFETY: the caller's contract.
        None => unsafe { real!(sigsuspend(mask: *const sigset_t) -> c_int) },
    }
}

/// POSIX's `pause`.
///
/// # Safety
/// POSIX's contract: a cancellation point.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pause() -> c_int {
    match as_task() {
        Some(thread) => suspend(thread, None),
        // SAFETY: the caller's contract.
        None => unsafe { real!(pause() -> c_int) },
    }
}

/// BSD's `sigpause`, with a mask of the first 32 signals.
///
/// # Safety
/// A cancellation point.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigpause(mask: c_int) -> c_int {
    match as_task() {
        Some(thread) => suspend(thread, Some(Set::from(mask as u32))),
        // SAFETY: the caller's contract.
        None => unsafe { real!(sigpause(mask: c_int) -> c_int) },
    }
}

/// POSIX's `sigpause`, with one signal to unblock.
///
/// # Safety
/// A cancellation point.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __xpg_sigpause(signal: c_int) -> c_int {
    match as_task() {
        Some(_) if !(1..=64).contains(&signal) => errno::fail(libc::EINVAL),
        Some(thread) => {
            let mask = thread.signals.mask.load(Ordering::Relaxed) & !bit(signal);
            suspend(thread, Some(mask))
        }
        // SAFETY: the caller's contract.
        None => unsafe { real!(__xpg_sigpause(signal: c_int) -> c_int) },
    }
}

/// What a wait for one of several signals came to: the signal, or an error number.
type Waited = Result<siginfo_t, c_int>;

/// Waits for a signal of `set` until `deadline`. Returns EINTR after another signal's handler.
fn await_one(thread: &'static Thread, set: Set, deadline: Option<Ns>) -> Waited {
    let set = set & !UNBLOCKABLE;
    thread.signals.awaited.store(set, Ordering::SeqCst);
    let waited = await_listed(thread, set, deadline);
    thread.signals.awaited.store(0, Ordering::SeqCst);
    waited
}

fn await_listed(thread: &'static Thread, set: Set, deadline: Option<Ns>) -> Waited {
    // SAFETY: all-zero is room for a description.
    let mut info: siginfo_t = unsafe { std::mem::zeroed() };
    let mut may_block = false;
    loop {
        if let Some(info) = queue::pop(thread, set) {
            return Ok(info);
        }
        if may_block && thread.must_attend(Attend::Cancel) {
            thread.signals.awaited.store(0, Ordering::SeqCst);
            if cancel::attend(Attend::Cancel).has_run() {
                return Err(libc::EINTR);
            }
            thread.signals.awaited.store(set, Ordering::SeqCst);
            continue;
        }
        let rest = match deadline {
            _ if !may_block => Some(Ns::ZERO),
            Some(at) => Some(Ns(at.0.saturating_sub(heddle_sys::clock::now().0))),
            None => None,
        };
        let time = rest.map(clock::timespec);
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        // What was sent to the process is pending in the kernel: workers hold everything back.
        let mut wait = || {
            // SAFETY: the pointers are valid for the call.
            unsafe { syscall!(libc::SYS_rt_sigtimedwait, &raw const set, &raw mut info, time, 8) }
        };
        let result = if may_block { heddle_rt::blocking(wait) } else { wait() };
        if result > 0 {
            queue::restore(&mut info);
            return Ok(info);
        }
        let is_over = deadline.is_some_and(|at| at <= heddle_sys::clock::now());
        if is_over {
            return queue::pop(thread, set).ok_or(libc::EAGAIN);
        }
        may_block = true;
    }
}

/// Returns `signal`, for which a kernel thread has waited: in `info`, if that is not null, stands who has sent it.
///
/// # Safety
/// `info` is null, or describes the signal if that is not -1.
unsafe fn restored(info: *mut siginfo_t, signal: c_int) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(info) = unsafe { info.as_mut() }.filter(|_| signal > 0) {
        queue::restore(info);
    }
    signal
}

/// POSIX's `sigtimedwait`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigtimedwait(
    set: *const sigset_t,
    info: *mut siginfo_t,
    time: *const timespec,
) -> c_int {
    let Some(thread) = as_task() else {
        // SAFETY: the caller's contract.
        return unsafe {
            let signal = real!(sigtimedwait(
                set: *const sigset_t,
                info: *mut siginfo_t,
                time: *const timespec,
            ) -> c_int);
            restored(info, signal)
        };
    };
    cancel::point();
    // SAFETY: null or the caller's time.
    let span = match unsafe { time.as_ref() }.map(clock::span) {
        Some(None) => return errno::fail(libc::EINVAL),
        Some(span) => span,
        None => None,
    };
    let deadline = span.map(|span| Ns(heddle_sys::clock::now().0.saturating_add(span.0)));
    // SAFETY: the caller's set.
    match await_one(thread, set_of(unsafe { &*set }), deadline) {
        Ok(mut found) => {
            // As the C library says it: POSIX does not know the other.
            if found.si_code == libc::SI_TKILL {
                found.si_code = libc::SI_USER;
            }
            if !info.is_null() {
                // SAFETY: the caller's memory.
                unsafe { info.write(found) };
            }
            found.si_signo
        }
        Err(error) => errno::fail(error),
    }
}

/// POSIX's `sigwaitinfo`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int {
    if as_task().is_none() {
        // SAFETY: the caller's contract.
        return unsafe {
            let signal = real!(sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int);
            restored(info, signal)
        };
    }
    // SAFETY: the caller's contract.
    unsafe { sigtimedwait(set, info, ptr::null()) }
}

/// POSIX's `sigwait`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int {
    let Some(thread) = as_task() else {
        // SAFETY: the caller's contract.
        return unsafe { real!(sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int) };
    };
    cancel::point();
    // SAFETY: the caller's set.
    let wanted = set_of(unsafe { &*set });
    loop {
        match await_one(thread, wanted, None) {
            Ok(found) => {
                // SAFETY: the caller's memory.
                unsafe { signal.write(found.si_signo) };
                return 0;
            }
            Err(libc::EINTR) => {}
            Err(error) => return error,
        }
    }
}

/// Makes the call in which the kernel interrupted the calling task return EINTR, if the task has something to attend to
/// and gave its CPU away to block there: the runtime's signal would let the call go on. The task then attends, and
/// makes the call again or returns.
pub(super) fn interrupt_call(context: *mut ucontext_t) {
    let Some(thread) = Thread::current() else { return };
    if !thread.must_attend(Attend::Cancel) || !raw::is_blocking() {
        return;
    }
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    // SAFETY: the kernel's frame; the interrupted instruction is this library's, so it can be read.
    unsafe {
        let registers = &mut (*context).uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as usize;
        let call = registers[libc::REG_RAX as usize];
        let operation = registers[libc::REG_RSI as usize] as c_int;
        if crate::image::is_own_code(at)
            && *(at as *const [u8; 2]) == SYSCALL
            && may_block(call, operation)
        {
            registers[libc::REG_RAX as usize] = -i64::from(libc::EINTR);
            registers[libc::REG_RIP as usize] += SYSCALL.len() as i64;
        }
    }
}

/// Returns whether `call`, with this second argument, may block for long and may fail with EINTR.
fn may_block(call: i64, operation: c_int) -> bool {
    match call {
        libc::SYS_futex => {
            let wait = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
            matches!(wait, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET)
        }
        libc::SYS_fcntl => operation == libc::F_SETLKW || operation == libc::F_OFD_SETLKW,
        _ => matches!(
            call,
            libc::SYS_read
                | libc::SYS_readv
                | libc::SYS_preadv2
                | libc::SYS_recvfrom
                | libc::SYS_recvmsg
                | libc::SYS_recvmmsg
                | libc::SYS_accept
                | libc::SYS_accept4
                | libc::SYS_connect
                | libc::SYS_open
                | libc::SYS_openat
                | libc::SYS_flock
                | libc::SYS_wait4
                | libc::SYS_waitid
                | libc::SYS_poll
                | libc::SYS_ppoll
                | libc::SYS_select
                | libc::SYS_pselect6
                | libc::SYS_epoll_wait
                | libc::SYS_epoll_pwait
                | libc::SYS_epoll_pwait2
                | libc::SYS_nanosleep
                | libc::SYS_clock_nanosleep
                | libc::SYS_rt_sigtimedwait
                | libc::SYS_msgrcv
                | libc::SYS_msgsnd
                | libc::SYS_semop
                | libc::SYS_semtimedop
                | libc::SYS_mq_timedreceive
                | libc::SYS_mq_timedsend
                | libc::SYS_io_getevents
        ),
    }
}
