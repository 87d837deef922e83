//! `setuid` and similar calls, which change every thread of the process.
//!
//! To the kernel, only threads have credentials. So the C library marks the descriptor of every thread in its list,
//! sends each a dedicated signal, and repeats that until each mark is gone; the handler makes the system call and
//! removes the mark from the descriptor that FS points to. On a worker that is a task's descriptor, which is not
//! marked: without this module the worker's would stay marked, and the call would never return.
//!
//! Our handler runs first. It runs the C library's with the worker's own FS, on the worker's alternate stack. The
//! worker whose task makes the call gets the signal as well, since it is not the C library's caller; it makes the
//! system call twice, with the same result.

use super::affinity::real_create;
use crate::worker::Worker;
use heddle_arch::{fs_base, gs_base, set_fs_base};
use heddle_sys::signal::Handler;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The C library's signal; `sigaction` refuses it, the system call does not.
const SIGSETXID: i32 = 33;

/// The kernel's form of `sigaction`.
#[repr(C)]
#[derive(Default)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// The C library's handler.
static REAL: AtomicUsize = AtomicUsize::new(0);

/// Installs our handler in front of the C library's.
pub(super) fn install() {
    // The C library installs its own when it creates the first thread.
    first_thread();
    let mut action = Action::default();
    // SAFETY: the kernel fills a structure of this form.
    let asked = unsafe { rt_sigaction(std::ptr::null(), &mut action) };
    if asked != 0 || action.handler == libc::SIG_DFL || action.handler == libc::SIG_IGN {
        // This C library does it differently.
        return;
    }
    REAL.store(action.handler, Ordering::Relaxed);
    // Nothing may interrupt while FS is the worker's: a preemption would find no task and be lost.
    let ours = Action {
        handler: on_signal as *const () as usize,
        flags: action.flags | libc::SA_ONSTACK as u64,
        mask: !0,
        ..action
    };
    // SAFETY: the handler calls the C library's as that would have been called; its restorer stays.
    unsafe { rt_sigaction(&ours, std::ptr::null_mut()) };
}

/// Creates a kernel thread and waits for its end.
fn first_thread() {
    extern "C" fn nothing(_: *mut c_void) -> *mut c_void {
        std::ptr::null_mut()
    }
    let mut thread = 0;
    // SAFETY: a thread that does nothing and is joined.
    unsafe {
        if real_create()(&mut thread, std::ptr::null(), nothing, std::ptr::null_mut()) == 0 {
            libc::pthread_join(thread, std::ptr::null_mut());
        }
    }
}

unsafe fn rt_sigaction(new: *const Action, old: *mut Action) -> libc::c_long {
    // SAFETY: the caller's pointers are null or valid; a mask of the kernel has 8 bytes.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, SIGSETXID, new, old, 8) }
}

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: stored before this was installed, and of this type: SA_SIGINFO is among its flags.
    let real: Handler = unsafe { std::mem::transmute(REAL.load(Ordering::Relaxed)) };
    let block = gs_base();
    if block == 0 {
        return real(signal, info, context);
    }
    // SAFETY: what GS points to is a worker, which outlives its thread, and this is its thread. Nothing in between uses
    // thread-local variables of the task, and all signals are blocked.
    unsafe {
        let own = (*(block as *const Worker)).loop_fs.get();
        let task = fs_base();
        set_fs_base(own);
        real(signal, info, context);
        set_fs_base(task);
    }
}
