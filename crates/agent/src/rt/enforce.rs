//! The system calls that make a thread what was decided of it.
//!
//! Around each the thread's words say that it is being changed: the kernel's half takes a policy or a mask that is not the one in
//! the words for somebody else's, but not then.

use super::memory::ThreadWords;
use crate::identity::{self, Change, Identity};
use heddle_core::Class;
use heddle_sys::scheduling::{Mask, Scheduling};
use heddle_sys::thread;
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// What a committed thread is. One of best effort is an ordinary thread: real-time ones that never sleep are stopped for 50 ms of
/// each second, so that ordinary ones get something, and with them would be stopped whoever is in a hurry on that CPU.
fn committed(class: Class) -> Scheduling {
    if class == Class::LC { Scheduling::fifo(1) } else { Scheduling::ORDINARY }
}

fn changing<T>(words: &ThreadWords<'_>, change: impl FnOnce() -> T) -> T {
    words.changing().fetch_add(1, AcqRel);
    let result = change();
    // Another thread may have got the slot in between, which begins with 0.
    let _ = words.changing().fetch_update(Release, Relaxed, |changes| changes.checked_sub(1));
    result
}

/// A thread that is gone needs nothing any more: its end is told by message. Whether it is there, its words say.
///
/// # Errors
/// The kernel's; `EAGAIN` where the thread has another number by now, of which its words do not know yet.
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

/// Whether the number `tid` is none of the thread's process.
fn has_lost(words: &ThreadWords<'_>, tid: u32) -> bool {
    tid != words.tgid() && !thread::is_in(tid, words.tgid())
}

/// Whether the thread has another number than its words say. One that is not its process's first takes over the first one's while it
/// executes a program, and the kernel's half is told when that is loaded: never, if it lies on a file system that does not answer. The
/// number that it had is the first one's for a moment, which is a zombie then, and may be anybody's after that.
pub(super) fn is_renumbered(words: &ThreadWords<'_>, tid: u32) -> bool {
    let is_lost = has_lost(words, tid) || (tid != words.tgid() && identity::is_over(tid));
    // Of one that has ended by itself they say so by now.
    is_lost && words.is_of(tid)
}

/// What children of `maker` have it from. What it has itself was decided here, if it is managed.
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

/// How a thread was scheduled before it came.
fn before(words: &ThreadWords<'_>) -> Scheduling {
    let (number, priority) = words.old();
    Scheduling::from_number(number, priority).unwrap_or(Scheduling::ORDINARY)
}

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
        // The kernel's half says so of one that has another number, after it has changed that: this was not done to it.
        if words.tid().load(Relaxed) != tid {
            words.policy().store(0, Relaxed);
        }
        Ok(())
    })
}

/// Before all parked threads, and one that is latency-critical before all ordinary ones.
pub(super) fn promote(words: &ThreadWords<'_>, tid: u32, class: Class) -> io::Result<()> {
    give(words, tid, committed(class))
}

/// Behind all of them.
pub(super) fn demote(words: &ThreadWords<'_>, tid: u32) -> io::Result<()> {
    give(words, tid, Scheduling::IDLE)
}

/// Whether it is before parked threads.
pub(super) fn is_promoted(words: &ThreadWords<'_>) -> bool {
    !is_new(words) && words.policy().load(Relaxed) != Scheduling::IDLE.class as u32 + 1
}

/// Whether it has been made anything yet.
pub(super) fn is_new(words: &ThreadWords<'_>) -> bool {
    words.policy().load(Relaxed) == 0
}

/// Confines it to `mask`, unless it is already.
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

/// Makes a new thread a parked one, on `mask`. Its nice value is what its parent's was before the parent became real-time.
pub(super) fn settle(words: &ThreadWords<'_>, tid: u32, mask: &Mask) -> io::Result<()> {
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

/// Makes it what it was before it came.
///
/// # Errors
/// The kernel's; `EAGAIN` where the thread has another number by now, of which its words do not know yet.
pub(super) fn restore(words: &ThreadWords<'_>, tid: u32) -> io::Result<()> {
    changing(words, || {
        let cpus = match change(words, tid, Change::Cpus(words.wanted())) {
            // Its cgroup allows none of them any more: all that it allows.
            Err(error) if error.raw_os_error() == Some(EINVAL) => {
                change(words, tid, Change::Cpus([u64::MAX; 16]))
            }
            done => done,
        };
        let nice = match is_new(words) {
            true => change(words, tid, Change::Nice(words.nice())),
            false => Ok(()),
        };
        // Of three that may fail each is tried.
        change(words, tid, Change::Policy(before(words))).and(nice).and(cpus)?;
        // It took all that for the thread.
        if is_renumbered(words, tid) {
            return Err(io::Error::from_raw_os_error(EAGAIN));
        }
        // From here on it is nobody's to check.
        words.policy().store(0, Relaxed);
        Ok(())
    })
}

/// Lets a thread that has left by itself run where its program wants it. It is managed no more, so only its identity says whether the
/// number is still its own.
pub(super) fn unconfine(words: &ThreadWords<'_>, tid: u32) {
    let who = Some(words.identity());
    // Where the kernel says no, it stays where it is: it is its program's now.
    let _ = Change::Cpus(words.wanted()).make(tid, || Identity::of(tid) == who);
}
