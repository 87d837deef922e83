//! Waiting for a future in a thread.

use crate::preempt::NoPreempt;
use crate::switch::leave_for;
use crate::sync::waiter::{self, Waiter};
use crate::task::Task;
use std::pin::pin;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// Polls `future` on the calling context until it is ready, and returns its output. The context may be an ordinary
/// thread, a thread of Heddle's, or the poll of an async task: the worker runs others while the future waits.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    // SAFETY: the word of the caller, by the table below.
    let waker = unsafe { Waker::from_raw(raw_waker(Waiter::current().into_word())) };
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        wait();
    }
}

/// Waits until the caller's future is woken, or returns spuriously: then the future is polled once more. If it was
/// woken already, lets other tasks run: it may have woken itself, to yield.
fn wait() {
    let Some(task) = Task::current() else { return waiter::park() };
    let _guard = NoPreempt::new();
    let next = task.sched().park(task).or_else(|| task.sched().yield_now(task));
    leave_for(task, next);
}

/// Wakers of contexts. A context's memory is never freed, so there is nothing to count, and a waker that is used too
/// late wakes another context spuriously at worst.
static CONTEXT: RawWakerVTable = RawWakerVTable::new(
    |word| raw_waker(word as usize),
    |word| notify(word as usize),
    |word| notify(word as usize),
    |_| {},
);

fn raw_waker(word: usize) -> RawWaker {
    RawWaker::new(word as *const (), &CONTEXT)
}

fn notify(word: usize) {
    // SAFETY: a waker's data is a waiter's word.
    unsafe { Waiter::from_word(word) }.notify();
}
