//! Waiting for the end of a task; the protocol is [`heddle_sync::EndWord`].

use crate::pool;
use crate::preempt::NoPreempt;
use crate::sync::waiter::{self, Limit, Waiter};
use crate::task::{Task, TaskRef};
use crate::wake::reach;

/// Returns the waiter for the end of `task`, if it is a task that waits without a limit: any other may leave at any
/// moment.
#[inline]
pub(crate) fn waiting_task(task: &Task) -> Option<TaskRef> {
    let word = task.end.waiter().filter(|word| word & 1 == 0)?;
    // SAFETY: an even waiter's word is a task's address.
    Some(unsafe { TaskRef::from_addr(word) })
}

/// Wakes the waiter that left `word` with a task. Each word is woken once: it was exchanged for another.
pub(crate) fn wake_joiner(word: usize) {
    let _guard = NoPreempt::new();
    // SAFETY: a joiner left its word for us.
    unsafe { Waiter::from_word(word) }.wake();
}

/// Waits until `task` has ended. Returns false if its runtime was dropped before; then the task no longer has a handle.
///
/// # Panics
/// If `task` is the caller.
#[inline(always)]
pub(crate) fn wait(task: TaskRef) -> bool {
    assert_not_caller(task);
    let word = Waiter::current().into_word();
    if task.get().end.register(word) {
        while !task.get().end.is_settled() {
            waiter::park();
        }
    }
    !task.get().end.give_up()
}

#[inline(always)]
fn assert_not_caller(task: TaskRef) {
    assert!(
        Task::current().is_none_or(|caller| TaskRef::new(caller) != task),
        "failed to join task: a task cannot wait for its own end"
    );
}

/// Like [`wait`], within `limit`; returns `None` if the limit ended the wait.
///
/// # Panics
/// If `task` is the caller.
pub(crate) fn wait_limited(task: TaskRef, limit: impl Limit) -> Option<bool> {
    assert_not_caller(task);
    let end = &task.get().end;
    let is_settled = watch(task, || {
        while !end.is_settled() {
            if !limit.park() {
                return false;
            }
        }
        true
    });
    (is_settled || end.is_settled()).then(|| !end.give_up())
}

/// Runs `f`; meanwhile the end of `task` wakes the caller, even if the runtime is dropped before.
pub(crate) fn watch<R>(task: TaskRef, f: impl FnOnce() -> R) -> R {
    let end = &task.get().end;
    let is_registered = end.register_revocable(Waiter::current().into_word());
    let result = f();
    if is_registered {
        // If this fails, the task has ended or was abandoned, and the word is gone.
        let _ = end.revoke();
    }
    result
}

/// Called when the handle has seen the end and taken the result, or when there is no longer a handle.
pub(crate) fn recycle(task: TaskRef) {
    let _guard = NoPreempt::new();
    if reach(task.get().entity(), |sched| sched.recycle(task)).is_none() {
        task.get().disown();
        pool::give(task.get().stack.class, [task].into_iter());
    }
}
