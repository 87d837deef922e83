//! Waiting for an address, and waking who waits: one queue for everything that threads wait for.

pub(crate) use heddle_rt::raw::lot::{For, Outcome, requeue, wake};

use crate::report;
use crate::sys::syscall;
use crate::thread::Thread;
use heddle_core::Ns;
use heddle_rt::raw::lot::{self, LOT, Section, Waiter};
use heddle_rt::raw::{Caller, RawTask};
use heddle_sync::{LotNode, SpinLock};
use heddle_sys::clock;
use libc::pthread_t;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Empties the lot in the child of a fork, where no thread waits.
///
/// # Safety
/// The caller is the process's only thread.
pub(crate) unsafe fn forget() {
    // SAFETY: by the caller's promise.
    unsafe { LOT.clear() };
    SLEEPERS.first.set(ptr::null());
    if SLEEPERS.lock.is_locked() {
        SLEEPERS.lock.unlock();
    }
}

/// What ends a wait besides being woken.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    /// The time at which it ends, on the runtime's clock.
    pub(crate) deadline: Option<Ns>,
    pub(crate) attend: Attend,
}

/// Which requests of other threads end a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attend {
    /// Signals for this thread.
    Signals,
    /// Signals, and a request to cancel it: the wait is a cancellation point.
    Cancel,
}

impl Limit {
    /// Waits until it is woken.
    pub(crate) const FOREVER: Limit = Limit { deadline: None, attend: Attend::Signals };
}

/// Waits for `key`, if `condition` holds once every waker would find the caller. `condition` only loads and stores, and
/// `bits` are those of [`LotNode::new`].
///
/// The caller is a task or a kernel thread, not the runtime.
pub(crate) fn wait(
    key: usize,
    bits: u32,
    what: For,
    limit: Limit,
    condition: impl FnOnce() -> bool,
) -> Outcome {
    match Caller::here() {
        Caller::Task => wait_as_task(key, bits, what, limit, condition).0,
        _ => wait_as_thread(key, bits, limit, condition).0,
    }
}

/// Like [`wait`], and returns the address at which it was woken: another than `key` after [`requeue`].
pub(crate) fn wait_requeued(
    key: usize,
    limit: Limit,
    condition: impl FnOnce() -> bool,
) -> (Outcome, usize) {
    match Caller::here() {
        Caller::Task => wait_as_task(key, u32::MAX, For::Event, limit, condition),
        _ => wait_as_thread(key, u32::MAX, limit, condition),
    }
}

#[inline]
fn wait_as_task(
    key: usize,
    bits: u32,
    what: For,
    limit: Limit,
    condition: impl FnOnce() -> bool,
) -> (Outcome, usize) {
    let task = RawTask::current().expect("the caller is a task");
    let thread = Thread::of(task);
    let is_asked = || thread.is_some_and(|thread| thread.must_attend(limit.attend));
    let result = lot::wait_as_task(key, bits, what, limit.deadline, is_asked, condition);
    if result.0 != Outcome::Changed {
        report::after_wait(task);
    }
    result
}

#[cold]
fn wait_as_thread(
    key: usize,
    bits: u32,
    limit: Limit,
    condition: impl FnOnce() -> bool,
) -> (Outcome, usize) {
    let word = AtomicU32::new(0);
    // SAFETY: it is not left before, below.
    let node = LotNode::new(unsafe { Waiter::thread(&word) }, bits);
    {
        let _section = Section::new();
        // SAFETY: the node stays until it is woken or withdrawn, below.
        if !unsafe { LOT.join_if(key, &node, condition) } {
            return (Outcome::Changed, key);
        }
    }
    let sleeper = (limit.attend == Attend::Cancel).then(|| Sleeper::new(&word));
    // SAFETY: it leaves below; nothing unwinds before.
    sleeper.as_ref().inspect(|sleeper| unsafe { sleeper.join() });
    let outcome = loop {
        match word.load(Ordering::Acquire) {
            0 => {}
            DISTURBED => break Outcome::Interrupted,
            _ => break Outcome::Woken,
        }
        let now = clock::now();
        if limit.deadline.is_some_and(|at| at <= now) {
            break Outcome::TimedOut;
        }
        let rest = limit.deadline.map(|at| at - now);
        if sleep_on(&word, rest) == -(libc::EINTR as isize) {
            break Outcome::Interrupted;
        }
    };
    if let Some(sleeper) = &sleeper {
        sleeper.leave();
        // It is not disturbed any more.
        let _ = word.compare_exchange(DISTURBED, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
    if outcome == Outcome::Woken {
        return (outcome, node.key());
    }
    let _section = Section::new();
    if LOT.withdraw(&node) {
        return (outcome, node.key());
    }
    // The waker is about to set the word, which must stay until then.
    while word.load(Ordering::Acquire) == 0 {
        sleep_on(&word, None);
    }
    (Outcome::Woken, node.key())
}

/// The word of a waiting kernel thread that is to look what is asked of it.
const DISTURBED: u32 = 2;

/// A kernel thread that waits at a cancellation point. The C library, which keeps its requests, does not wake it.
struct Sleeper<'a> {
    thread: pthread_t,
    word: &'a AtomicU32,
    next: Cell<*const Sleeper<'static>>,
}

/// The sleepers of the process.
struct Sleepers {
    lock: SpinLock,
    first: Cell<*const Sleeper<'static>>,
}

// SAFETY: used under the lock only.
unsafe impl Sync for Sleepers {}

static SLEEPERS: Sleepers = Sleepers { lock: SpinLock::new(), first: Cell::new(ptr::null()) };

impl Sleepers {
    fn with<R>(&self, f: impl FnOnce(&Cell<*const Sleeper<'static>>) -> R) -> R {
        let _section = Section::new();
        self.lock.lock();
        let result = f(&self.first);
        self.lock.unlock();
        result
    }
}

impl<'a> Sleeper<'a> {
    fn new(word: &'a AtomicU32) -> Sleeper<'a> {
        // SAFETY: no arguments.
        let thread = unsafe { libc::pthread_self() };
        Sleeper { thread, word, next: Cell::new(ptr::null()) }
    }

    fn at(&self) -> *const Sleeper<'static> {
        ptr::from_ref(self).cast()
    }

    /// # Safety
    /// It stays where it is until [`Sleeper::leave`].
    unsafe fn join(&self) {
        SLEEPERS.with(|first| self.next.set(first.replace(self.at())));
    }

    fn leave(&self) {
        SLEEPERS.with(|first| {
            let mut link = first;
            while link.get() != self.at() {
                // SAFETY: listed sleepers are valid, and this one is listed.
                link = unsafe { &(*link.get()).next };
            }
            link.set(self.next.get());
        });
    }
}

/// Makes the kernel thread `thread` look what is asked of it, if it waits at a cancellation point.
pub(crate) fn disturb(thread: pthread_t) {
    SLEEPERS.with(|first| {
        let mut next = first.get();
        // SAFETY: listed sleepers are valid, and so are their words; the lock is held.
        while let Some(sleeper) = unsafe { next.as_ref() } {
            next = sleeper.next.get();
            let (from, to) = (0, DISTURBED);
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            if sleeper.thread == thread
                && sleeper.word.compare_exchange(from, to, order.0, order.1).is_ok()
            {
                let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
                // SAFETY: the sleeper's word.
                unsafe { syscall!(libc::SYS_futex, sleeper.word.as_ptr(), wake, 1) };
            }
        }
    });
}

/// Sleeps in the kernel while `word` is 0, for at most `rest`. Returns what the kernel returned.
fn sleep_on(word: &AtomicU32, rest: Option<Ns>) -> isize {
    let time = rest.map(crate::clock::timespec);
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time are valid for the call.
    unsafe { syscall!(libc::SYS_futex, word.as_ptr(), wait, 0, time) }
}
