//! Sending signals to tasks.

use super::actions::{self, Kind, SIGNALS};
use super::{deliver, is_on, post, receiver};
use crate::errno;
use crate::real::real;
use crate::sys::syscall;
use crate::thread::Thread;
use heddle_rt::raw::Caller;
use libc::{pid_t, pthread_t, siginfo_t, sigval};
use std::ffi::{c_int, c_uint};
use std::ptr;

/// Describes `signal` as the calling process sends it.
fn describe(signal: c_int, code: c_int, value: usize) -> siginfo_t {
    /// The kernel's layout of what a process sends.
    #[repr(C)]
    struct Sent {
        signo: c_int,
        errno: c_int,
        code: c_int,
        pad: c_int,
        pid: pid_t,
        uid: libc::uid_t,
        value: usize,
    }
    // SAFETY: all-zero is valid; the description is larger than what is written, and laid out like that.
    unsafe {
        let mut info: siginfo_t = std::mem::zeroed();
        let (pid, uid) = (libc::getpid(), libc::getuid());
        let sent = Sent { signo: signal, errno: 0, code, pad: 0, pid, uid, value };
        (&raw mut info).cast::<Sent>().write(sent);
        info
    }
}

fn exists(signal: c_int) -> bool {
    (1..=SIGNALS).contains(&signal) && !matches!(signal, 32 | 33)
}

/// Sends `signal` to a task; 0 asks whether it is there.
fn thread_kill(thread: &'static Thread, signal: c_int) -> Result<(), c_int> {
    if signal != 0 && !exists(signal) {
        return Err(libc::EINVAL);
    }
    if thread.task.has_ended() {
        return Err(libc::ESRCH);
    }
    if signal == 0 {
        return Ok(());
    }
    post(thread, &describe(signal, libc::SI_TKILL, 0))
}

/// What `tgkill` does for the thread that answers `number` to `gettid`, if that is a task.
fn tgkill_number(process: pid_t, number: pid_t, signal: c_int) -> Option<Result<(), c_int>> {
    // SAFETY: no arguments.
    if process != unsafe { libc::getpid() } {
        return None;
    }
    let is_it = |thread: &&Thread| thread.tid() as pid_t == number && thread.is_alive();
    Thread::all().find(is_it).map(|thread| thread_kill(thread, signal))
}

/// POSIX's `pthread_kill`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_kill(thread: pthread_t, signal: c_int) -> c_int {
    match Thread::find(thread) {
        Some(record) => thread_kill(record, signal).err().unwrap_or(0),
        // SAFETY: the caller's contract.
        None => unsafe { real!(pthread_kill(thread: pthread_t, signal: c_int) -> c_int) },
    }
}

/// glibc's `pthread_sigqueue`.
///
/// # Safety
/// glibc's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigqueue(
    thread: pthread_t,
    signal: c_int,
    value: sigval,
) -> c_int {
    let Some(record) = Thread::find(thread) else {
        // SAFETY: the caller's contract.
        return unsafe {
            real!(pthread_sigqueue(thread: pthread_t, signal: c_int, value: sigval) -> c_int)
        };
    };
    if !exists(signal) {
        return libc::EINVAL;
    }
    if record.task.has_ended() {
        return libc::ESRCH;
    }
    let info = describe(signal, libc::SI_QUEUE, value.sival_ptr as usize);
    post(record, &info).err().unwrap_or(0)
}

/// C's `raise`.
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raise(signal: c_int) -> c_int {
    match Thread::current() {
        Some(thread) => match thread_kill(thread, signal) {
            Ok(()) => 0,
            Err(error) => errno::fail(error),
        },
        // SAFETY: the caller's contract.
        None => unsafe { real!(raise(signal: c_int) -> c_int) },
    }
}

/// glibc's other name of `raise`.
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsignal(signal: c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { raise(signal) }
}

/// glibc's `tgkill`.
#[unsafe(no_mangle)]
pub extern "C" fn tgkill(process: pid_t, number: pid_t, signal: c_int) -> c_int {
    match tgkill_number(process, number, signal) {
        Some(Ok(())) => 0,
        Some(Err(error)) => errno::fail(error),
        // SAFETY: takes numbers only.
        None => errno::of_kernel(unsafe { syscall!(libc::SYS_tgkill, process, number, signal) })
            as c_int,
    }
}

/// Sends a signal to the calling task that it sent to its process: if it accepts it, it is as good as any thread, and
/// handles it before the call returns. Returns `None` if the kernel is to choose.
fn send_to_own_process(process: pid_t, signal: c_int, code: c_int, value: usize) -> Option<c_int> {
    // SAFETY: no arguments.
    if !is_on() || process != unsafe { libc::getpid() } || !exists(signal) {
        return None;
    }
    let thread = Thread::current().filter(|thread| thread.signals.accepts(signal))?;
    if actions::get(signal).kind(signal) != Kind::Handled {
        return None;
    }
    match post(thread, &describe(signal, code, value)) {
        Ok(()) => Some(0),
        Err(error) => Some(errno::fail(error)),
    }
}

/// POSIX's `kill`.
#[unsafe(no_mangle)]
pub extern "C" fn kill(process: pid_t, signal: c_int) -> c_int {
    if let Some(own) = send_to_own_process(process, signal, libc::SI_USER, 0) {
        return own;
    }
    // SAFETY: takes numbers only.
    let result = unsafe { syscall!(libc::SYS_kill, process, signal) };
    if process <= 0 {
        handle_own(signal);
    }
    errno::of_kernel(result) as c_int
}

/// Called after `signal` was sent to processes among which the caller's may be: a task that accepts it has handled it
/// before the call returns.
fn handle_own(signal: c_int) {
    let accepts = |thread: &&Thread| exists(signal) && thread.signals.accepts(signal);
    if let Some(thread) = Thread::current().filter(accepts)
        && Caller::here() == Caller::Task
    {
        receiver::settle();
        deliver(thread, ptr::null_mut());
    }
}

/// Linux's `pidfd_send_signal`.
///
/// # Safety
/// Linux's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pidfd_send_signal(
    process: c_int,
    signal: c_int,
    info: *const siginfo_t,
    flags: c_uint,
) -> c_int {
    let call = libc::SYS_pidfd_send_signal;
    // SAFETY: the caller's contract.
    let result = unsafe { syscall!(call, process, signal, info, flags) };
    handle_own(signal);
    errno::of_kernel(result) as c_int
}

/// POSIX's `killpg`.
#[unsafe(no_mangle)]
pub extern "C" fn killpg(group: pid_t, signal: c_int) -> c_int {
    match group {
        ..0 => errno::fail(libc::EINVAL),
        _ => kill(-group, signal),
    }
}

/// POSIX's `sigqueue`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigqueue(process: pid_t, signal: c_int, value: sigval) -> c_int {
    let bits = value.sival_ptr as usize;
    match send_to_own_process(process, signal, libc::SI_QUEUE, bits) {
        Some(result) => result,
        // SAFETY: the caller's contract.
        None => unsafe { real!(sigqueue(process: pid_t, signal: c_int, value: sigval) -> c_int) },
    }
}
