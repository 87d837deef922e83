//! What `syscall` does, and the calls that are functions of ours.

use super::Threads;
use crate::errno;
use crate::image::{self, IMAGE};
use crate::mutex::own_tid;
use crate::sched::prctl;
use crate::signals::send;
use crate::sys;
use crate::thread::Thread;
use heddle_rt::raw::{self, Caller, FUTEX2_REQUEUE, FUTEX2_WAITV, RawTask};
use libc::{c_long, pid_t};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = hook;

/// Makes the calls of the program go to [`dispatch`], when the library is loaded.
extern "C" fn hook() {
    image::find();
    raw::hook_syscall(IMAGE.bounds(), dispatch);
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
            libc::SYS_futex => raw::futex::<Threads>(args),
            FUTEX2_WAITV..=FUTEX2_REQUEUE => raw::futex2::<Threads>(number, args),
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
