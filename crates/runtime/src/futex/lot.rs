//! The process's parking lot: tasks, and kernel threads of a thread library's, that wait for addresses.

use crate::preempt::NoPreempt;
use crate::sync::waiter;
use crate::task::{Task, TaskRef};
use crate::wake::wake as wake_task;
use crate::worker::Worker;
use heddle_core::Ns;
use heddle_sync::{Lot, LotNode};
use heddle_sys::{clock, signal};
use std::sync::atomic::{AtomicU32, Ordering};

/// All waiters of the process.
pub static LOT: Lot<Waiter> = Lot::new();

/// A task or a kernel thread that waits.
#[derive(Clone, Copy)]
pub struct Waiter(Kind);

/// Two words for debuggers: 0 and the address of the task, or 1 and that of the thread's word.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Kind {
    Task(TaskRef),
    /// A kernel thread, asleep on this word of its stack: 1 once it has been woken.
    Thread(*const AtomicU32),
}

// SAFETY: a waiter's word stays until it is set; a task's reference is always valid.
unsafe impl Send for Waiter {}

impl Waiter {
    /// Returns a kernel thread that sleeps on `word`, which becomes 1 when it is woken.
    ///
    /// # Safety
    /// The word stays until then, or until the waiter has been withdrawn.
    pub unsafe fn thread(word: &AtomicU32) -> Waiter {
        Waiter(Kind::Thread(word))
    }

    fn wake(self) {
        match self.0 {
            Kind::Task(task) => wake_task(task),
            Kind::Thread(word) => {
                // SAFETY: the waiter leaves its word only once it is set. After that the address is only a key: a
                // futex that is there by now is woken for no reason, which every waiter tolerates.
                unsafe {
                    (*word).store(1, Ordering::Release);
                    let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
                    super::call(libc::SYS_futex, [word as usize, wake as usize, 1, 0, 0, 0]);
                }
            }
        }
    }
}

/// A stretch of code that holds one of the lot's locks. A task is not preempted in it. A kernel thread that is not the
/// runtime's is not interrupted in it: the handler of a signal may wake others, for which it takes the same lock.
pub struct Section {
    mask: Option<u64>,
    _guard: NoPreempt,
}

impl Section {
    /// Begins one.
    #[inline]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Section {
        let is_foreign = Task::current().is_none() && Worker::here().is_none();
        let block = || signal::change_mask(libc::SIG_SETMASK, !(signal::bit(32) | signal::bit(33)));
        Section { mask: is_foreign.then(block), _guard: NoPreempt::new() }
    }
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        if let Some(mask) = self.mask {
            signal::change_mask(libc::SIG_SETMASK, mask);
        }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A wake was meant for this waiter.
    Woken,
    /// The condition did not hold: there was no wait.
    Changed,
    /// Its time was up.
    TimedOut,
    /// It was asked to stop; it no longer waits.
    Interrupted,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// A lock: while it waits, it lends its CPU to a task that was preempted lately and may hold the lock. Otherwise
    /// that waits behind whatever the policy prefers, all of which may come to wait for the lock, too.
    Lock,
    /// Anything else.
    Event,
}

/// Parks the calling task until it is woken at `key`, if `condition` holds once every waker would find it; no longer
/// than until `deadline`, on the runtime's clock, and not if `is_asked` to stop. `condition` only loads and stores, and
/// `bits` are those of [`LotNode::new`]. Returns how it ended, and the address at which it was woken: another than
/// `key` after [`requeue`].
///
/// # Panics
/// If the caller is no task.
#[inline]
pub fn wait_as_task(
    key: usize,
    bits: u32,
    what: For,
    deadline: Option<Ns>,
    is_asked: impl Fn() -> bool,
    condition: impl FnOnce() -> bool,
) -> (Outcome, usize) {
    let task = Task::current().expect("the caller is a task");
    let node = LotNode::new(Waiter(Kind::Task(TaskRef::new(task))), bits);
    let is_first = what == For::Lock && !LOT.has_waiters(key);
    {
        let _section = Section::new();
        // SAFETY: the node stays until it is woken or withdrawn, below.
        if !unsafe { LOT.join_if(key, &node, condition) } {
            return (Outcome::Changed, key);
        }
    }
    let give_up = |outcome| {
        let _section = Section::new();
        if LOT.withdraw(&node) { outcome } else { Outcome::Woken }
    };
    let outcome = loop {
        if node.is_woken() {
            break Outcome::Woken;
        }
        if is_asked() {
            break give_up(Outcome::Interrupted);
        }
        if deadline.is_some_and(|at| at <= clock::now()) {
            break give_up(Outcome::TimedOut);
        }
        match deadline {
            None if what == For::Lock => waiter::park_for_lock(is_first),
            None => waiter::park(),
            Some(at) => waiter::park_until(at),
        }
    };
    (outcome, node.key())
}

/// Returns whether there may be waiters for `key`: a load. What they wait for has been changed by a sequentially
/// consistent read-modify-write operation.
#[inline]
pub fn has_waiters(key: usize) -> bool {
    LOT.has_waiters(key)
}

/// Wakes up to `most` waiters for `key` that share a bit with `bits`. Returns how many. What they wait for has been
/// changed by a sequentially consistent read-modify-write operation.
#[inline]
pub fn wake(key: usize, most: usize, bits: u32) -> usize {
    if !LOT.has_waiters(key) {
        return 0;
    }
    let _section = Section::new();
    LOT.wake(key, most, bits, Waiter::wake)
}

/// Wakes up to `most.0` waiters for `from`, and makes up to `most.1` of the rest wait for `to`, if `condition` holds
/// while no other waiter joins or leaves. `moved` runs if any was moved, before any waker of `to` can look. Returns how
/// many were woken and moved, or `None`.
pub fn requeue(
    from: usize,
    to: usize,
    most: (usize, usize),
    condition: impl FnOnce() -> bool,
    moved: impl Fn(),
) -> Option<(usize, usize)> {
    let _section = Section::new();
    LOT.requeue(from, to, most, condition, moved, Waiter::wake)
}
