//! The entry of `syscall`, and the calls that are functions of ours.

use super::{FUTEX2_REQUEUE, FUTEX2_WAITV, futex, futex2};
use crate::errno;
use crate::image::IMAGE;
use crate::mutex::own_tid;
use crate::sched::prctl;
use crate::signals::send;
use crate::sys;
use crate::thread::Thread;
use heddle_rt::raw::{Caller, RawTask};
use libc::{c_long, pid_t};
use std::arch::naked_asm;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

/// The C library's `syscall`.
///
/// # Safety
/// The call's own contract.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // A call from the library's own code goes to the kernel. Any other goes on with the registers and the stack as they
    // are, which is how `dispatch` takes its arguments.
    naked_asm!(
        ".cfi_startproc",
        "mov rax, [rsp]",
        "sub rax, [rip + {image}]",
        "cmp rax, [rip + {image} + 8]",
        "jae {dispatch}",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "mov rdi, rax",
        "jmp {failed}",
        ".cfi_endproc",
        image = sym IMAGE,
        dispatch = sym dispatch,
        failed = sym failed,
    )
}

/// Returns -1 with `errno` set.
extern "C" fn failed(result: isize) -> isize {
    errno::of_kernel(result)
}

/// Makes a call of the program's.
unsafe extern "C" fn dispatch(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let args = [a, b, c, d, e, f];
    // SAFETY: the caller's contract.
    let result = unsafe {
        match number {
            libc::SYS_futex => futex(args),
            FUTEX2_WAITV..=FUTEX2_REQUEUE => futex2(number, args),
            libc::SYS_gettid
            | libc::SYS_set_tid_address
            | libc::SYS_tkill
            | libc::SYS_tgkill
            | libc::SYS_kill
            | libc::SYS_pidfd_send_signal
            | libc::SYS_prctl
            | libc::SYS_sched_yield
            | libc::SYS_clock_gettime
            | libc::SYS_getrusage
            | libc::SYS_nanosleep
            | libc::SYS_clock_nanosleep
            | libc::SYS_sched_setaffinity
            | libc::SYS_sched_getaffinity => return function(number, args),
            _ => sys::call(number, args),
        }
    };
    errno::of_kernel(result) as c_long
}

/// Makes a call that would apply to the kernel thread, as the function of its name. What it returns is the function's:
/// -1 with `errno` set if it failed.
unsafe fn function(number: c_long, args: [usize; 6]) -> c_long {
    let [a, b, c, d, ..] = args;
    let caller = Caller::here();
    // SAFETY: the caller's contract.
    unsafe {
        match number {
            // A kernel thread may send a signal to a task.
            libc::SYS_tgkill if caller != Caller::Runtime => {
                c_long::from(libc::tgkill(a as pid_t, b as pid_t, c as c_int))
            }
            libc::SYS_tkill if caller != Caller::Runtime => {
                c_long::from(libc::tgkill(libc::getpid(), a as pid_t, b as c_int))
            }
            libc::SYS_kill if caller == Caller::Task => {
                c_long::from(libc::kill(a as pid_t, b as c_int))
            }
            libc::SYS_pidfd_send_signal if caller == Caller::Task => {
                let (process, signal, flags) = (a as c_int, b as c_int, d as c_uint);
                c_long::from(send::pidfd_send_signal(process, signal, c as _, flags))
            }
            libc::SYS_prctl if caller == Caller::Task => {
                c_long::from(prctl(a as c_int, b, c, d, args[4]))
            }
            libc::SYS_gettid if caller == Caller::Task => c_long::from(own_tid()),
            // The address is the kernel thread's, which outlives the task.
            libc::SYS_set_tid_address if caller == Caller::Task => c_long::from(own_tid()),
            libc::SYS_sched_yield if caller == Caller::Task => c_long::from(libc::sched_yield()),
            // Those that are no task's go to the kernel from there.
            libc::SYS_clock_gettime => c_long::from(libc::clock_gettime(a as c_int, b as _)),
            libc::SYS_getrusage => c_long::from(libc::getrusage(a as c_int, b as _)),
            libc::SYS_nanosleep if caller == Caller::Task => {
                not_cancelled(|| c_long::from(libc::nanosleep(a as _, b as _)))
            }
            libc::SYS_clock_nanosleep if caller == Caller::Task => not_cancelled(|| {
                match libc::clock_nanosleep(a as c_int, b as c_int, c as _, d as _) {
                    0 => 0,
                    error => c_long::from(errno::fail(error)),
                }
            }),
            libc::SYS_sched_setaffinity if caller == Caller::Task && is_own(a) => {
                c_long::from(libc::sched_setaffinity(0, b, c as _))
            }
            libc::SYS_sched_getaffinity if caller == Caller::Task && is_own(a) => {
                // The call returns how much it wrote, the function does not.
                let written = sys::call(number, [0, b, c, 0, 0, 0]);
                if written > 0 && libc::sched_getaffinity(0, written as usize, c as _) != 0 {
                    return -1;
                }
                errno::of_kernel(written) as c_long
            }
            _ => errno::of_kernel(sys::call(number, args)) as c_long,
        }
    }
}

/// Returns whether a call that takes the number `tid` means the calling task.
fn is_own(tid: usize) -> bool {
    tid as u32 == 0 || tid as u32 == own_tid()
}

/// Runs `f`, in which the calling task is not cancelled: `syscall` is no cancellation point.
fn not_cancelled<R>(f: impl FnOnce() -> R) -> R {
    let Some(thread) = Thread::current() else { return f() };
    let was = thread.cancel_enabled.swap(false, Ordering::Relaxed);
    let result = f();
    thread.cancel_enabled.store(was, Ordering::Relaxed);
    result
}

/// glibc's `gettid`: in a task, its own number.
#[unsafe(no_mangle)]
pub extern "C" fn gettid() -> pid_t {
    match RawTask::current() {
        Some(_) => own_tid() as pid_t,
        None => sys::gettid() as pid_t,
    }
}
