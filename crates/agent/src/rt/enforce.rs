//! The system calls that make a thread what was decided of it.
//!
//! Around each the thread's words say that it is being changed: the kernel's half takes a policy or a mask that is not the one in
//! the words for somebody else's, but not then.

use super::memory::ThreadWords;
use heddle_core::Class;
use heddle_sys::scheduling::{self, Mask, Scheduling};
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

/// What a committed thread is. One of best effort is an ordinary thread: real-time ones that never sleep are stopped for 50 ms of
/// each second, so that ordinary ones get something, and with them would be stopped whoever is in a hurry on that CPU.
fn committed(class: Class) -> Scheduling {
    if class == Class::LC { Scheduling::fifo(1) } else { Scheduling::ORDINARY }
}

fn changing<T>(words: &ThreadWords<'_>, change: impl FnOnce() -> T) -> T {
    words.changing().fetch_add(1, AcqRel);
    let result = change();
    words.changing().fetch_sub(1, Release);
    result
}

/// A thread that is gone needs nothing any more: its end is told by message.
fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(()),
        result => result,
    }
}

const ESRCH: i32 = 3;

fn give(words: &ThreadWords<'_>, tid: u32, scheduling: Scheduling) -> io::Result<()> {
    let number = scheduling.class as u32 + 1;
    if words.policy().load(Relaxed) == number {
        return Ok(());
    }
    changing(words, || {
        unless_gone(scheduling::set(tid, scheduling))?;
        words.policy().store(number, Relaxed);
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
        unless_gone(scheduling::set_mask(tid, mask))?;
        words.set_placed(mask);
        Ok(())
    })
}

/// Makes a new thread a parked one, on `mask`. Its nice value is what its parent's was before the parent became real-time.
pub(super) fn settle(words: &ThreadWords<'_>, tid: u32, mask: &Mask) -> io::Result<()> {
    changing(words, || {
        unless_gone(scheduling::set_nice(tid, words.nice()))?;
        place(words, tid, mask)?;
        demote(words, tid)
    })
}

/// Makes it what it was before it came.
pub(super) fn restore(words: &ThreadWords<'_>, tid: u32) -> io::Result<()> {
    let (number, priority) = words.old();
    let before = Scheduling::from_number(number, priority).unwrap_or(Scheduling::ORDINARY);
    changing(words, || {
        let first = unless_gone(scheduling::set_mask(tid, &words.wanted()));
        if is_new(words) {
            unless_gone(scheduling::set_nice(tid, words.nice()))?;
        }
        unless_gone(scheduling::set(tid, before))?;
        // From here on it is nobody's to check.
        words.policy().store(0, Relaxed);
        first
    })
}
