//! How threads begin and end.

use super::{Life, Thread, first};
use crate::real::real;
use crate::wait::Attend;
use crate::{base, cancel, mutex, signals, start};
use heddle_core::{Class, TaskAttrs};
use heddle_rt::raw::{self, Caller, Entry, NewTask, RawTask};
use libc::{pthread_attr_t, pthread_t};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The number of threads that are tasks and have not ended.
static ALIVE: AtomicUsize = AtomicUsize::new(0);
/// Set when the program's first thread has left by `pthread_exit`: the last thread ends the process.
static MAIN_HAS_LEFT: AtomicBool = AtomicBool::new(false);

/// Room for the signal frame and the block of thread-local variables, which the C library takes from a mapping of its
/// own, or from above the stack.
const EXTRA_STACK: usize = 16 << 10;

/// An attribute's scheduling policy counts.
const PTHREAD_EXPLICIT_SCHED: c_int = 1;

/// What a program asks of a new thread.
struct ThreadRequest {
    stack: usize,
    life: Life,
    /// Only a kernel thread has it: a stack of the program's own, or a real-time policy.
    is_foreign: bool,
}

unsafe extern "C" {
    fn pthread_getattr_default_np(attr: *mut pthread_attr_t) -> c_int;
    fn pthread_attr_getdetachstate(attr: *const pthread_attr_t, state: *mut c_int) -> c_int;
    fn pthread_attr_getstackaddr(attr: *const pthread_attr_t, at: *mut *mut c_void) -> c_int;
    fn pthread_attr_getinheritsched(attr: *const pthread_attr_t, inherit: *mut c_int) -> c_int;
    fn pthread_attr_getschedpolicy(attr: *const pthread_attr_t, policy: *mut c_int) -> c_int;
}

impl ThreadRequest {
    /// Reads `attr` by the public functions only.
    ///
    /// # Safety
    /// `attr` is null or initialised.
    unsafe fn of(attr: *const pthread_attr_t) -> ThreadRequest {
        let (mut stack, mut detached, mut inherits, mut policy) = (0, 0, 0, 0);
        let mut at = ptr::null_mut();
        if attr.is_null() {
            return ThreadRequest {
                stack: default_stack(),
                life: Life::Joinable,
                is_foreign: false,
            };
        }
        // SAFETY: the caller's attribute, and room for each answer.
        unsafe {
            libc::pthread_attr_getstacksize(attr, &mut stack);
            pthread_attr_getdetachstate(attr, &mut detached);
            pthread_attr_getstackaddr(attr, &mut at);
            pthread_attr_getinheritsched(attr, &mut inherits);
            pthread_attr_getschedpolicy(attr, &mut policy);
        }
        let life = match detached {
            libc::PTHREAD_CREATE_DETACHED => Life::Detached,
            _ => Life::Joinable,
        };
        // The address is the stack's end: for an attribute without a stack, the C library computes it from null.
        let has_stack = !at.is_null() && at as usize != stack;
        let is_real_time = inherits == PTHREAD_EXPLICIT_SCHED
            && matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR);
        ThreadRequest { stack, life, is_foreign: has_stack || is_real_time }
    }
}

/// Returns the stack size of threads created without attributes.
fn default_stack() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let mut size = 8 << 20;
        // SAFETY: the C library initialises the attribute.
        unsafe {
            let mut attr = std::mem::zeroed();
            if pthread_getattr_default_np(&mut attr) == 0 {
                libc::pthread_attr_getstacksize(&attr, &mut size);
                libc::pthread_attr_destroy(&mut attr);
            }
        }
        size
    })
}

/// What `pthread_create` does.
///
/// # Safety
/// POSIX's contract.
pub(crate) unsafe extern "C" fn create(
    thread: *mut pthread_t,
    attr: *const pthread_attr_t,
    entry: Entry,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's contract.
    let request = unsafe { ThreadRequest::of(attr) };
    if Caller::here() == Caller::Runtime || start::is_starting() || request.is_foreign {
        // SAFETY: the caller's contract.
        return signals::with_own_mask(|| unsafe {
            raw::create_foreign_thread(thread, attr, entry, argument)
        });
    }
    start::runtime();
    let argument = argument as usize;
    let attrs = TaskAttrs::default();
    let run = move || {
        let thread = Thread::current().expect("`create` made the record");
        run(thread, entry, argument as *mut c_void);
    };
    let Ok(task) = NewTask::create(request.stack + EXTRA_STACK, attrs, run) else {
        return libc::EAGAIN;
    };
    let record = Thread::for_block(task.task());
    record.begin(request.life);
    // SAFETY: this is the thread's argument.
    unsafe { record.wishes.set_start(entry, argument as *mut c_void) };
    let class = record.wishes.class();
    if class != Class::LC {
        task.task().set_class(class);
    }
    ALIVE.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's memory. Written before the thread can run.
    unsafe { thread.write(record.id()) };
    let detached = request.life == Life::Detached;
    let task = task.start();
    if detached {
        task.detach();
    }
    0
}

/// Makes the contexts in which futures are polled detached threads of this library, as their makers are.
pub(crate) fn adopt_carriers() {
    let made = |task| Thread::for_block(task).begin(Life::Detached);
    let begins = || {
        if let Some(thread) = Thread::current() {
            thread.tid.store(raw::renumber(), Ordering::Relaxed);
        }
    };
    let ends = || {
        if let Some(thread) = Thread::current() {
            signals::end(thread);
        }
    };
    raw::hook_carriers(made, begins, ends);
}

/// What a thread begins with.
struct First {
    entry: Entry,
    argument: *mut c_void,
}

/// Calls the start routine, after the handlers of signals that have come before.
unsafe extern "C-unwind" fn first(first: *mut c_void) -> *mut c_void {
    // SAFETY: `run` passes it, and stays.
    let First { entry, argument } = unsafe { first.cast::<First>().read() };
    let attend = || {
        if Thread::current().is_some_and(|thread| thread.is_asked(Thread::SIGNAL)) {
            let _ = cancel::attend(Attend::Signals);
        }
    };
    attend();
    // SAFETY: the same call, which may be left by unwinding.
    let entry: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void =
        unsafe { std::mem::transmute(entry) };
    // SAFETY: the start routine's contract is the program's.
    let result = unsafe { entry(argument) };
    // The senders of signals that have come by now may wait for the handlers.
    signals::receiver::before_end();
    attend();
    result
}

/// The life of a thread.
fn run(thread: &'static Thread, entry: Entry, argument: *mut c_void) {
    thread.tid.store(raw::renumber(), Ordering::Relaxed);
    let mut result = ptr::null_mut();
    let mut begin = First { entry, argument };
    // SAFETY: the same but for unwinding, which `call` allows.
    let entry: Entry = unsafe {
        std::mem::transmute(first as unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void)
    };
    // SAFETY: this is the thread's first call.
    if unsafe { base::call(entry, (&raw mut begin).cast(), &mut result) } == 0 {
        thread.result.store(result, Ordering::Release);
    }
    if RawTask::current().is_none() {
        // The child of a fork that the thread made: its only thread ends.
        // SAFETY: as the C library does.
        unsafe { libc::exit(0) };
    }
    // Neither cancelled nor interrupted from here on.
    thread.cancel_enabled.store(false, Ordering::Relaxed);
    raw::run_destructors();
    mutex::leave_robust(thread);
    signals::end(thread);
    reset_libc();
    if thread.life() == Life::Detached as u8 {
        thread.life.store(Life::None as u8, Ordering::Release);
    }
    one_ends();
}

/// glibc's LC_GLOBAL_LOCALE.
const GLOBAL_LOCALE: libc::locale_t = usize::MAX as libc::locale_t;

/// Leaves the C library's thread-local state as a new thread expects it: the descriptor serves another one next.
fn reset_libc() {
    crate::errno::set(0);
    // SAFETY: the global locale is never freed.
    unsafe {
        if libc::uselocale(ptr::null_mut()) != GLOBAL_LOCALE {
            libc::uselocale(GLOBAL_LOCALE);
        }
    }
}

/// In the child of a fork: no thread is a task.
pub(super) fn forget() {
    ALIVE.store(0, Ordering::Release);
    MAIN_HAS_LEFT.store(false, Ordering::Release);
}

/// Ends the process if the calling thread was its last.
fn one_ends() {
    if ALIVE.fetch_sub(1, Ordering::AcqRel) == 1 && MAIN_HAS_LEFT.load(Ordering::Acquire) {
        // SAFETY: as the C library does when the last thread ends.
        unsafe { libc::exit(0) };
    }
}

/// Ends the calling thread with `value`, after its cleanup handlers and C++ destructors.
pub(crate) fn exit(value: *mut c_void) -> ! {
    first::go_back();
    match Thread::current() {
        Some(thread) => {
            thread.cancel_enabled.store(false, Ordering::Relaxed);
            thread.result.store(value, Ordering::Release);
        }
        None => start::when_main_ends(|| {
            MAIN_HAS_LEFT.store(true, Ordering::Release);
            if ALIVE.load(Ordering::Acquire) == 0 {
                // SAFETY: as above.
                unsafe { libc::exit(0) };
            }
        }),
    }
    // SAFETY: the function has this type; a task unwinds to the frame in `base`.
    unsafe { real!(pthread_exit(value: *mut c_void) -> ()) }
    unreachable!("a thread does not come back from its end")
}

/// POSIX's `pthread_exit`.
///
/// # Safety
/// POSIX's contract: the caller's frames may be left.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_exit(value: *mut c_void) -> ! {
    exit(value)
}
