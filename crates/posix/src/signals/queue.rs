//! Signals sent to tasks, until they are handled.

use super::{Quiet, Set};
use crate::sys::syscall;
use crate::thread::Thread;
use heddle_sync::SpinLock;
use heddle_sys::signal::bit;
use libc::siginfo_t;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many may be pending in the process. Beyond that, signals below the real-time ones lose only their description.
const ROOM: usize = 256;

/// The first real-time signal: from here on equal ones queue.
const REAL_TIME: c_int = 32;

struct Entry {
    /// For whom; null if the entry is free.
    thread: *const Thread,
    /// Whether it was sent to the process: another thread may have it.
    is_shared: bool,
    /// Its place in the order of arrival.
    number: u64,
    info: siginfo_t,
}

struct Entries {
    entries: [Entry; ROOM],
    next: u64,
    /// Of each signal of [`RETURNED`], what its sender has said.
    returned: [siginfo_t; 64],
}

/// Signals that were given back to the process by a second `kill`, which says another sender ([`give_back`]).
static RETURNED: AtomicU64 = AtomicU64::new(0);

struct Queue {
    lock: SpinLock,
    entries: UnsafeCell<Entries>,
}

// SAFETY: the entries are used under the lock only.
unsafe impl Sync for Queue {}

static QUEUE: Queue = Queue {
    lock: SpinLock::new(),
    // SAFETY: all-zero is valid: null threads, zero numbers.
    entries: UnsafeCell::new(unsafe { std::mem::zeroed() }),
};

pub(super) fn lock() {
    QUEUE.lock.lock();
}

pub(super) fn unlock() {
    QUEUE.lock.unlock();
}

fn with<R>(f: impl FnOnce(&mut Entries) -> R) -> R {
    let _quiet = Quiet::new();
    lock();
    // SAFETY: the lock is held; `f` does not come back here.
    let result = f(unsafe { &mut *QUEUE.entries.get() });
    unlock();
    result
}

impl Entries {
    fn of(&mut self, thread: &Thread) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().filter(move |entry| ptr::eq(entry.thread, thread))
    }
}

/// A full queue, or a signal that is pending already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    New,
    /// The signal was pending: there is still one.
    Merged,
    Full,
}

/// Queues a signal for `thread`.
pub(super) fn push(thread: &Thread, info: &siginfo_t, is_shared: bool) -> Pushed {
    let signal = info.si_signo;
    with(|queue| {
        let pending = &thread.signals.pending;
        if signal < REAL_TIME && pending.load(Ordering::Relaxed) & bit(signal) != 0 {
            return Pushed::Merged;
        }
        let number = queue.next;
        match queue.entries.iter_mut().find(|entry| entry.thread.is_null()) {
            Some(free) => *free = Entry { thread, is_shared, number, info: *info },
            None if signal < REAL_TIME => {}
            None => return Pushed::Full,
        }
        queue.next += 1;
        pending.fetch_or(bit(signal), Ordering::SeqCst);
        Pushed::New
    })
}

/// Takes the first of the pending signals of `thread` that `accepted` has, the lowest number first.
pub(super) fn pop(thread: &Thread, accepted: Set) -> Option<siginfo_t> {
    if thread.signals.pending.load(Ordering::SeqCst) & accepted == 0 {
        return None;
    }
    with(|queue| {
        let pending = &thread.signals.pending;
        let candidates = pending.load(Ordering::Relaxed) & accepted;
        if candidates == 0 {
            return None;
        }
        let signal = candidates.trailing_zeros() as c_int + 1;
        let mut count = 0;
        let mut first: Option<&mut Entry> = None;
        for entry in queue.of(thread).filter(|entry| entry.info.si_signo == signal) {
            count += 1;
            if first.as_ref().is_none_or(|first| entry.number < first.number) {
                first = Some(entry);
            }
        }
        if count <= 1 {
            pending.fetch_and(!bit(signal), Ordering::SeqCst);
        }
        let info = first.map(|entry| {
            entry.thread = ptr::null();
            entry.info
        });
        Some(info.unwrap_or_else(|| plain(signal)))
    })
}

/// Returns the description of a signal of which nothing else is known.
pub(super) fn plain(signal: c_int) -> siginfo_t {
    // SAFETY: all-zero is valid: a signal by `kill`.
    let mut info: siginfo_t = unsafe { std::mem::zeroed() };
    info.si_signo = signal;
    info
}

/// Gives the pending signals of `thread` among `signals` that were sent to the process back to it.
pub(super) fn leave(thread: &Thread, signals: Set) {
    // Who queues one from here on sees that the thread no longer accepts it.
    if thread.signals.pending.load(Ordering::SeqCst) & signals == 0 {
        return;
    }
    loop {
        let found = with(|queue| {
            let is_it =
                |entry: &&mut Entry| entry.is_shared && signals & bit(entry.info.si_signo) != 0;
            let entry = queue.of(thread).find(is_it)?;
            entry.thread = ptr::null();
            let info = entry.info;
            if !queue.of(thread).any(|entry| entry.info.si_signo == info.si_signo) {
                thread.signals.pending.fetch_and(!bit(info.si_signo), Ordering::SeqCst);
            }
            Some(info)
        });
        match found {
            Some(info) => give_back(&info),
            None => return,
        }
    }
}

/// Sends a signal that was sent to the process to it once more. The kernel lets only the first thread repeat what the
/// kernel or `kill` has said. From others such a signal seems to come from the process itself: who receives it calls
/// [`restore`].
pub(super) fn give_back(info: &siginfo_t) {
    // SAFETY: a valid description.
    unsafe {
        let (process, signal) = (libc::getpid(), info.si_signo);
        if syscall!(libc::SYS_rt_sigqueueinfo, process, signal, ptr::from_ref(info)) < 0 {
            with(|queue| queue.returned[signal as usize - 1] = *info);
            RETURNED.fetch_or(bit(signal), Ordering::SeqCst);
            syscall!(libc::SYS_kill, process, signal);
        }
    }
}

/// Makes `info`, of a signal that the kernel has delivered, say what its sender has said, if it was given back. For
/// signal handlers, too.
pub(super) fn restore(info: &mut siginfo_t) {
    let signal = info.si_signo;
    if RETURNED.load(Ordering::SeqCst) & bit(signal) == 0 {
        return;
    }
    // SAFETY: a signal by `kill` has a sender.
    let is_ours = info.si_code == libc::SI_USER && unsafe { info.si_pid() == libc::getpid() };
    if is_ours && RETURNED.fetch_and(!bit(signal), Ordering::SeqCst) & bit(signal) != 0 {
        with(|queue| *info = queue.returned[signal as usize - 1]);
    }
}

/// Forgets the pending signals of `thread`.
pub(super) fn discard(thread: &Thread) {
    if thread.signals.pending.load(Ordering::SeqCst) != 0 {
        with(|queue| {
            queue.of(thread).for_each(|entry| entry.thread = ptr::null());
            thread.signals.pending.store(0, Ordering::SeqCst);
        });
    }
}

/// Forgets every pending `signal`, which is ignored from now on.
pub(super) fn discard_all(signal: c_int) {
    RETURNED.fetch_and(!bit(signal), Ordering::SeqCst);
    with(|queue| {
        let of_signal = |entry: &&mut Entry| entry.info.si_signo == signal;
        for entry in queue.entries.iter_mut().filter(of_signal) {
            // SAFETY: null, or a record, which is never freed.
            if let Some(thread) = unsafe { entry.thread.as_ref() } {
                thread.signals.pending.fetch_and(!bit(signal), Ordering::SeqCst);
            }
            entry.thread = ptr::null();
        }
    });
}

/// Forgets everything: in the child of a fork nothing is pending. The lock is held.
pub(super) fn clear() {
    RETURNED.store(0, Ordering::SeqCst);
    // SAFETY: the caller holds the lock.
    let queue = unsafe { &mut *QUEUE.entries.get() };
    for entry in &mut queue.entries {
        // SAFETY: null, or a record, which is never freed.
        if let Some(thread) = unsafe { entry.thread.as_ref() } {
            thread.signals.pending.store(0, Ordering::SeqCst);
        }
        entry.thread = ptr::null();
    }
}
