//! Waiting for the end of a task; the protocol is [`heddle_sys::sync::EndWord`]'s.

use crate::liveness;
use crate::pool;
use crate::preempt::NoPreempt;
use crate::sync::who::{self, Who};
use crate::task::{Task, TaskRef};
use heddle_sys::sync::Ended;

/// The task, if a task it is, that waits for the end of `task`.
#[inline]
pub(crate) fn waiting_task(task: &Task) -> Option<TaskRef> {
    let word = task.end.waiter().filter(|word| word & 1 == 0)?;
    // SAFETY: a waiter's word that is not odd is a task's address.
    Some(unsafe { TaskRef::from_addr(word) })
}

/// Does what is left to do for a `task` that has ended. Preemption is off and no run queue is locked.
#[inline]
pub(crate) fn follow_up(task: TaskRef, ended: Ended) {
    match ended {
        Ended::Nothing => {}
        Ended::Recycle => task.get().sched().recycle(task),
        Ended::Wake(word) => wake_waiter(word),
    }
}

/// Wakes who left `word` with a task. Each word is woken once: it was exchanged for another.
pub(crate) fn wake_waiter(word: usize) {
    let _guard = NoPreempt::new();
    // SAFETY: a joiner left its word for us.
    unsafe { Who::from_word(word) }.wake();
}

/// Waits until `task` has ended; false if its runtime was dropped before, and then the task has no handle any more.
///
/// # Panics
/// If `task` is the caller.
#[inline(always)]
pub(crate) fn wait(task: TaskRef) -> bool {
    assert!(
        Task::current().is_none_or(|caller| TaskRef::new(caller) != task),
        "failed to join task: a task cannot wait for its own end"
    );
    let word = Who::current().into_word();
    if task.get().end.register(word) {
        while !task.get().end.is_settled() {
            who::park();
        }
    }
    !task.get().end.give_up()
}

/// The handle has seen the end and taken the result, or there is no handle any more.
pub(crate) fn recycle(task: TaskRef) {
    let _guard = NoPreempt::new();
    if liveness::reach(task.get(), |sched| sched.recycle(task)).is_none() {
        task.get().disown();
        pool::give(task.get().stack.class, [task].into_iter());
    }
}
