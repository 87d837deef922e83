//! The system calls that give a thread the scheduling that was decided.
//!
//! The thread's words say that it is being changed for the duration of each call: otherwise the kernel side takes a
//! policy or mask that differs from the words for a change by another program.

use super::memory::ThreadWords;
use crate::identity::{self, Change, Identity};
use heddle_core::Class;
use heddle_sys::scheduling::{Mask, Scheduling};
use heddle_sys::thread;
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// Returns the scheduling of a committed thread. Best-effort threads stay ordinary: real-time threads that never
/// sleep are stopped for 50 ms of each second in favour of ordinary ones, and that would stop the latency-critical
/// threads of the CPU with them.
fn committed(class: Class) -> Scheduling {
    if class == Class::LC { Scheduling::fifo(1) } else { Scheduling::ORDINARY }
}

fn changing<T>(words: &ThreadWords<'_>, change: impl FnOnce() -> T) -> T {
    words.changing().fetch_add(1, AcqRel);
    let result = change();
    // The slot may have been reused in between; a new slot begins with 0.
    let _ = words.changing().fetch_update(Release, Relaxed, |changes| changes.checked_sub(1));
    result
}

/// Changes a thread. One that is gone, by its words, needs no change: a message reports its end.
///
/// # Errors
/// The kernel's error; `EAGAIN` if the thread has another number by now, which its words do not have yet.
fn change(words: &ThreadWords<'_>, tid: u32, change: Change) -> io::Result<()> {
    let is_it = || words.is_of(tid) && !has_lost(words, tid);
    let made = change.make_or_undo(tid, is_it, |maker| as_child_of(words, change, maker));
    if has_lost(words, tid) && words.is_of(tid) {
        return Err(io::Error::from_raw_os_error(EAGAIN));
    }
    match made {
        Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(()),
        made => made,
    }
}

/// Makes a change again if the kernel refuses it: memory may be short for a moment.
fn retried(change: impl Fn() -> io::Result<()>) -> io::Result<()> {
    (1..TRIES).find_map(|_| change().ok()).map_or_else(change, Ok)
}

/// Whether `tid` is no longer a number of the thread's process.
fn has_lost(words: &ThreadWords<'_>, tid: u32) -> bool {
    tid != words.tgid() && !thread::is_in(tid, words.tgid())
}

/// Whether the thread has another number than its words say. A thread that is not its process's first takes over
/// the first one's number while it executes a program, and the kernel side is notified when the program is loaded:
/// never, if the program's file system does not answer. Its former number is the first thread's for a moment, which
/// is a zombie then; after that it may be reused.
pub(super) fn is_renumbered(words: &ThreadWords<'_>, tid: u32) -> bool {
    let is_lost = has_lost(words, tid) || (tid != words.tgid() && identity::is_over(tid));
    // If it has ended by itself, its words say so by now.
    is_lost && words.is_of(tid)
}

/// Returns what children of `maker` inherit. If `maker` is managed, its present settings were decided here.
pub(super) fn as_child_of(
    words: &ThreadWords<'_>,
    change: Change,
    maker: u32,
) -> io::Result<Change> {
    let Some(maker) = words.managed(maker) else { return change.like(maker) };
    Ok(match change {
        Change::Policy(_) => Change::Policy(before(&maker)),
        Change::Cpus(_) => Change::Cpus(maker.wanted()),
        Change::Nice(_) => Change::Nice(maker.nice()),
    })
}

/// Returns the thread's original scheduling.
fn before(words: &ThreadWords<'_>) -> Scheduling {
    let (number, priority) = words.old();
    Scheduling::from_number(number, priority).unwrap_or(Scheduling::ORDINARY)
}

/// How often to try to give a thread back what it had.
pub(super) const TRIES: usize = 3;

const ESRCH: i32 = 3;
const EAGAIN: i32 = 11;
const EINVAL: i32 = 22;

fn give(words: &ThreadWords<'_>, tid: u32, scheduling: Scheduling) -> io::Result<()> {
    let number = scheduling.class as u32 + 1;
    if words.policy().load(Relaxed) == number {
        return Ok(());
    }
    changing(words, || {
        change(words, tid, Change::Policy(scheduling))?;
        words.policy().store(number, Relaxed);
        fence(SeqCst);
        // The kernel side reports a thread with another number after it has changed the words; then the change did
        // not reach it.
        if words.tid().load(Relaxed) != tid {
            words.policy().store(0, Relaxed);
        }
        Ok(())
    })
}

/// Raises a committed thread above all parked ones, and above all ordinary ones if it is latency-critical.
pub(super) fn promote(words: &ThreadWords<'_>, tid: u32, class: Class) -> io::Result<()> {
    give(words, tid, committed(class))
}

/// Lowers a thread below all others.
pub(super) fn demote(words: &ThreadWords<'_>, tid: u32) -> io::Result<()> {
    give(words, tid, Scheduling::IDLE)
}

/// Whether the thread is above parked ones.
pub(super) fn is_promoted(words: &ThreadWords<'_>) -> bool {
    !is_new(words) && words.policy().load(Relaxed) != Scheduling::IDLE.class as u32 + 1
}

/// Whether nothing was set for the thread yet.
pub(super) fn is_new(words: &ThreadWords<'_>) -> bool {
    words.policy().load(Relaxed) == 0
}

/// Confines the thread to `mask`, if it is not already.
pub(super) fn place(words: &ThreadWords<'_>, tid: u32, mask: &Mask) -> io::Result<()> {
    if words.placed() == *mask && !is_new(words) {
        return Ok(());
    }
    changing(words, || {
        change(words, tid, Change::Cpus(*mask))?;
        words.set_placed(mask);
        Ok(())
    })
}

/// Parks a new thread, on `mask`. Its nice value is its parent's from before the parent became real-time.
pub(super) fn park_new(words: &ThreadWords<'_>, tid: u32, mask: &Mask) -> io::Result<()> {
    if words.began().load(Relaxed) == 0 {
        let who = Identity::of(tid).filter(|who| who.tgid == words.tgid());
        let began = who.map_or(0, |who| who.began);
        words.began().store(began, Relaxed);
    }
    changing(words, || {
        change(words, tid, Change::Nice(words.nice()))?;
        place(words, tid, mask)?;
        demote(words, tid)
    })
}

/// Restores the thread's original settings.
///
/// # Errors
/// The kernel's error; `EAGAIN` if the thread has another number by now, which its words do not have yet.
pub(super) fn restore(words: &ThreadWords<'_>, tid: u32) -> io::Result<()> {
    changing(words, || {
        // Now: once it has its policy, it may seem to have left by itself, and is no longer managed.
        let cpus = match retried(|| change(words, tid, Change::Cpus(words.wanted()))) {
            // Its cgroup no longer allows any of them: use all that it allows.
            Err(error) if error.raw_os_error() == Some(EINVAL) => {
                change(words, tid, Change::Cpus([u64::MAX; 16]))
            }
            done => done,
        };
        let nice = match is_new(words) {
            true => change(words, tid, Change::Nice(words.nice())),
            false => Ok(()),
        };
        // All three are tried, even if one fails.
        change(words, tid, Change::Policy(before(words))).and(nice).and(cpus)?;
        // Another thread with the number was changed instead.
        if is_renumbered(words, tid) {
            return Err(io::Error::from_raw_os_error(EAGAIN));
        }
        // From here on nothing checks the thread any more.
        words.policy().store(0, Relaxed);
        Ok(())
    })
}

/// Lets a thread that has left by itself run where its program wants it. It is no longer managed, so only its
/// identity tells whether the number is still its own.
pub(super) fn unconfine(words: &ThreadWords<'_>, tid: u32) {
    let who = Some(words.identity());
    // If the kernel refuses, the thread stays where it is: it is its program's now.
    let _ = retried(|| Change::Cpus(words.wanted()).make(tid, || Identity::of(tid) == who));
}
