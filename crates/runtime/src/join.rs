//! The end of a task, and who waits for it.
//!
//! One word decides (`Task::joiner`):
//!
//! ```text
//! NONE ----------> a waiter -> DONE       somebody joins, then the task ends
//! NONE -> ENDED -> a waiter -> DONE       the result is there, the task is about to leave its stack; then somebody joins
//! NONE -> ENDED -> DONE                   it ends before anybody joins
//! NONE -> DETACHED -> DONE                the handle was dropped first: the task drops its own result
//! ENDED -> DETACHED -> DONE               the handle drops the result
//! ```
//!
//! DONE is set by the context that comes after the task, so it means both: the result is there, and the stack is free. Who
//! finds DETACHED while setting DONE recycles the task; else the handle does, once it sees DONE.

use crate::preempt::NoPreempt;
use crate::sync::who::{self, Who};
use crate::task::{Task, TaskRef};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

const NONE: usize = 0;
const DONE: usize = usize::MAX;
const DETACHED: usize = usize::MAX - 1;
const ENDED: usize = usize::MAX - 2;

/// The task's result is in place; `drop_result` if its handle is gone. Called by the task.
pub(crate) fn result_is_there(task: &Task, drop_result: impl FnOnce()) {
    let seen = task.joiner.load(Acquire);
    // A waiter takes the result itself. Only the exchange that fails on DETACHED may drop it: after ENDED the handle does.
    let left = seen == NONE || seen == DETACHED;
    if left && task.joiner.compare_exchange(NONE, ENDED, AcqRel, Acquire) == Err(DETACHED) {
        drop_result();
    }
}

/// The task, if a task it is, that waits for the end of `task`.
#[inline]
pub(crate) fn waiting_task(task: &Task) -> Option<TaskRef> {
    let word = task.joiner.load(Acquire);
    // SAFETY: a word that is none of ours and not odd is a task's address.
    (word != NONE && word < ENDED && word & 1 == 0).then(|| unsafe { TaskRef::from_addr(word) })
}

/// What [`publish`] found.
pub(crate) struct Found(usize);

/// `task` is off its stack for good. Its run queue is still locked, so whoever was woken for this sees it. If that was the
/// task that joins (`woken`), the word is that task's alone and needs no exchange.
#[inline]
pub(crate) fn publish(task: TaskRef, woken: bool) -> Found {
    if woken {
        task.get().joiner.store(DONE, Release);
        return Found(NONE);
    }
    Found(task.get().joiner.swap(DONE, AcqRel))
}

/// Tells whoever waits for `task`; recycles it if nobody ever will. Preemption is off and no run queue is locked.
#[inline]
pub(crate) fn tell(task: TaskRef, found: Found) {
    match found.0 {
        NONE | ENDED => {}
        DETACHED => task.get().sched().recycle(task),
        // SAFETY: a joiner left its word for us, once.
        word => unsafe { Who::from_word(word) }.wake(),
    }
}

/// Whether `task` has ended and its stack is free.
#[inline]
pub(crate) fn is_done(task: TaskRef) -> bool {
    task.get().joiner.load(Acquire) == DONE
}

/// Waits until `task` is done.
#[inline(always)]
pub(crate) fn wait(task: TaskRef) {
    let word = Who::current().into_word();
    let joiner = &task.get().joiner;
    let mut seen = joiner.load(Acquire);
    while seen != DONE {
        match joiner.compare_exchange(seen, word, AcqRel, Acquire) {
            Err(now) => seen = now,
            Ok(_) => {
                while !is_done(task) {
                    who::park();
                }
                return;
            }
        }
    }
    // SAFETY: the word is ours: it was not left with the task.
    drop(unsafe { Who::from_word(word) });
}

/// The handle of `task` is dropped; `drop_result` if the task has left one.
pub(crate) fn detach(task: TaskRef, drop_result: impl FnOnce()) {
    let joiner = &task.get().joiner;
    if joiner.compare_exchange(NONE, DETACHED, AcqRel, Acquire).is_ok() {
        return;
    }
    // ENDED or DONE: nobody else can have joined.
    drop_result();
    if joiner.compare_exchange(ENDED, DETACHED, AcqRel, Acquire).is_err() {
        recycle(task);
    }
}

/// The handle has seen DONE and taken the result.
pub(crate) fn recycle(task: TaskRef) {
    let _guard = NoPreempt::new();
    task.get().sched().recycle(task);
}
