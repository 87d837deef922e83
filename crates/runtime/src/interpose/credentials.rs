//! `setuid` and similar calls, which change every thread of the process.
//!
//! To the kernel, only threads have credentials. So the C library marks the descriptor of every thread in its list,
//! sends each a dedicated signal, and repeats that until each mark is gone; the handler makes the system call and
//! removes the mark from the descriptor that FS points to. On a worker that is a task's descriptor, which is not
//! marked: without this module the worker's would stay marked, and the call would never return.
//!
//! Our handler runs first. It runs the C library's with the worker's own FS, on the worker's alternate stack; on the
//! leader of an adopted task ([`crate::adopt`]), whose number is in the task's descriptor, with that. A task that makes
//! such a call does so as its worker: the C library passes over the descriptor of its caller, and if that were an
//! adopted task's or a donor's, their threads would keep their credentials.

use super::affinity::real_create;
use crate::libc_fn::LibcFn;
use crate::preempt::NoPreempt;
use crate::task::Task;
use crate::worker::Worker;
use heddle_arch::{fs_base, gs_base, set_fs_base};
use heddle_sys::signal::{Handler, bit, change_mask};
use libc::{gid_t, uid_t};
use std::ffi::{c_char, c_int, c_void};
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

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

/// The number of the thread that leads an adopted task, and the task's descriptor; 0 without one.
static LEADER: AtomicU32 = AtomicU32::new(0);
static LED: AtomicUsize = AtomicUsize::new(0);

/// Notes that the calling kernel thread leads the task with the descriptor `fs`, or, with 0, that no thread leads one.
pub(crate) fn lead(fs: usize) {
    LED.store(fs, Ordering::Release);
    LEADER.store(if fs == 0 { 0 } else { heddle_sys::thread::id() }, Ordering::Release);
}

/// Returns the descriptor of the task that the calling kernel thread leads.
fn led() -> Option<usize> {
    let leader = LEADER.load(Ordering::Acquire);
    (leader != 0 && leader == heddle_sys::thread::id()).then(|| LED.load(Ordering::Acquire))
}

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
    let own = match block {
        0 => led(),
        // SAFETY: what GS points to is a worker, which outlives its thread, and this is its thread.
        _ => Some(unsafe { (*(block as *const Worker)).loop_fs.get() }),
    };
    let Some(own) = own else { return real(signal, info, context) };
    // SAFETY: a descriptor that outlives the thread. Nothing in between uses thread-local variables of the task, and
    // all signals are blocked. While a leader uses it, so may its task: what the C library's handler writes there it
    // writes by atomic instructions, as for other threads.
    unsafe {
        let task = fs_base();
        set_fs_base(own);
        real(signal, info, context);
        set_fs_base(task);
    }
}

/// Runs `change`, a function of the C library that returns 0 or fails with errno, as the calling task's worker: with
/// the worker's thread-local variables, and no signals. A kernel thread just runs it, and so does a task's copy in the
/// child of a fork: there the C library's list has the caller of the fork alone.
fn as_worker(change: impl FnOnce() -> c_int) -> c_int {
    let Some(task) = Task::current() else { return change() };
    let _guard = NoPreempt::new();
    // SAFETY: a task runs on a worker, and preemption is off.
    if unsafe { Worker::current() }.tid.load(Ordering::Relaxed) != heddle_sys::thread::id() {
        return change();
    }
    let mask = change_mask(libc::SIG_SETMASK, !(bit(32) | bit(SIGSETXID)));
    // SAFETY: a task runs on a worker, whose descriptor is its thread's. Nothing in between uses thread-local variables
    // of the task.
    unsafe {
        set_fs_base(Worker::current().loop_fs.get());
        let result = change();
        let error = *errno();
        set_fs_base(task.fs);
        if result != 0 {
            *errno() = error;
        }
        change_mask(libc::SIG_SETMASK, mask);
        result
    }
}

/// Returns where errno is. The compiler knows that `__errno_location` gives one answer in a function, and would not ask
/// again after FS has changed.
fn errno() -> *mut c_int {
    let location: unsafe extern "C" fn() -> *mut c_int = libc::__errno_location;
    // SAFETY: a function of the C library without conditions.
    unsafe { black_box(location)() }
}

/// Defines functions that change the credentials of the process.
macro_rules! changes {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// The C library's function of this name.
        ///
        /// # Safety
        /// Its contract.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            static REAL: LibcFn = LibcFn::named(concat!(stringify!($name), "\0"));
            // SAFETY: the symbol has this type; the caller's contract.
            unsafe {
                let real: unsafe extern "C" fn($($type),*) -> c_int =
                    std::mem::transmute(REAL.address());
                as_worker(|| real($($argument),*))
            }
        }
    )*};
}

changes! {
    setuid(user: uid_t);
    seteuid(user: uid_t);
    setreuid(user: uid_t, effective: uid_t);
    setresuid(user: uid_t, effective: uid_t, saved: uid_t);
    setgid(group: gid_t);
    setegid(group: gid_t);
    setregid(group: gid_t, effective: gid_t);
    setresgid(group: gid_t, effective: gid_t, saved: gid_t);
    setgroups(count: usize, groups: *const gid_t);
    initgroups(user: *const c_char, group: gid_t);
}
