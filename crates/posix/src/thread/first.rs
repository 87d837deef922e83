//! The program's first thread as a task: from the first `pthread_create` to its own `pthread_exit`.
//!
//! It keeps its stack, its descriptor and its number. Its kernel thread receives the process's signals meanwhile
//! ([`receiver`]). `exit`, and the return from `main`, end the process from the task as from any other; only
//! `pthread_exit` needs the kernel thread, which has the number that others see end.

use super::{Life, Thread};
use crate::signals::{first as signals, receiver};
use crate::{cancel, mutex, start};
use heddle_rt::raw::{self, NewFirst};
use std::ffi::c_int;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// The first thread's pointer, from the library's constructor on.
static POINTER: AtomicUsize = AtomicUsize::new(0);
/// Its record, while it is a task.
static RECORD: AtomicPtr<Thread> = AtomicPtr::new(ptr::null_mut());
/// Set when it is about to go back to its kernel thread.
static GOES_BACK: AtomicBool = AtomicBool::new(false);

/// Notes that the calling thread is the first. Called by the library's constructor.
pub(crate) fn note() {
    // SAFETY: returns the calling thread's pointer.
    POINTER.store(unsafe { libc::pthread_self() } as usize, Ordering::Relaxed);
}

/// Returns the record of the first thread, if it is a task.
pub(crate) fn record() -> Option<&'static Thread> {
    // SAFETY: null, or a record, which is never freed.
    unsafe { RECORD.load(Ordering::Acquire).as_ref() }
}

/// Returns whether the first thread is about to go back to the caller, its kernel thread.
pub(crate) fn goes_back() -> bool {
    GOES_BACK.load(Ordering::SeqCst)
}

/// Makes the calling thread a task, if it is the first one, and nothing forbids that: then its kernel thread calls
/// [`receiver::serve`]. Returns whether it did.
pub(crate) fn adopt() -> bool {
    if !may_be_a_task() {
        return false;
    }
    let mask = signals::hold_back();
    let Ok(first) = NewFirst::prepare(stack()) else {
        signals::let_through(mask);
        return false;
    };
    let record = Thread::for_block(first.task());
    record.tid.store(crate::sys::gettid(), Ordering::Relaxed);
    record.begin(Life::Detached);
    signals::begin(record, mask);
    mutex::take_robust(record);
    cancel::take_state(record);
    record.task.set_class(record.wishes.class());
    RECORD.store(ptr::from_ref(record).cast_mut(), Ordering::Release);
    // SAFETY: the signals are held back, and `may_be_a_task` has looked for a handler.
    unsafe { first.start(receiver::lead) };
    true
}

/// Returns whether the calling thread is the first one, as the program sees it, and can be a task: it asked for no
/// real-time policy and is in no signal's handler, from which the kernel would return on another thread.
fn may_be_a_task() -> bool {
    // SAFETY: numbers, and no arguments.
    unsafe {
        libc::pthread_self() as usize == POINTER.load(Ordering::Relaxed)
            && !start::is_main_the_kernels()
            && !matches!(
                crate::sys::syscall!(libc::SYS_sched_getscheduler, 0) as c_int,
                libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE
            )
            && !signals::is_in_handler()
    }
}

/// Returns the addresses that the first thread may use for its stack: what the kernel put there at the start, and below
/// as much as the limit of the process says.
fn stack() -> Range<usize> {
    const PAGE: usize = 4096;
    // SAFETY: the path of the program is the last thing on the stack; the limit is valid memory.
    unsafe {
        let top = (libc::getauxval(libc::AT_EXECFN) as usize).next_multiple_of(PAGE);
        let mut limit: libc::rlimit = std::mem::zeroed();
        let known = libc::getrlimit(libc::RLIMIT_STACK, &mut limit) == 0;
        let size = if known { limit.rlim_cur as usize } else { 8 << 20 };
        top.saturating_sub(size).max(PAGE)..top
    }
}

/// Called when the calling thread leaves by `pthread_exit`: if it is the first and a task, it goes on in its kernel
/// thread, as it was before.
#[cold]
#[inline(never)]
pub(super) fn go_back() {
    let Some(record) = Thread::current().filter(|thread| thread.is_first()) else { return };
    let mask = signals::end(record);
    record.life.store(Life::None as u8, Ordering::Release);
    RECORD.store(ptr::null_mut(), Ordering::Release);
    GOES_BACK.store(true, Ordering::SeqCst);
    receiver::notify();
    raw::go_back();
    GOES_BACK.store(false, Ordering::SeqCst);
    mutex::give_robust_back(record);
    signals::begin_again(record, mask);
}

/// In the child of a fork: it is a kernel thread.
pub(super) fn forget() {
    RECORD.store(ptr::null_mut(), Ordering::Release);
}
