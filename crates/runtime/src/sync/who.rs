//! Who waits: a task or an ordinary thread.

use crate::core_state;
use crate::preempt::NoPreempt;
use crate::sched::leave_for;
use crate::sync::thread_parker::ThreadParker;
use crate::task::{Task, TaskRef};
use crate::timers::Timer;
use crate::worker::Worker;
use heddle_core::Ns;
use heddle_sys::clock;

/// A party that can be woken.
pub(crate) enum Who {
    Task(TaskRef),
    Thread(&'static ThreadParker),
}

impl Who {
    /// The caller.
    #[inline]
    pub(crate) fn current() -> Who {
        match Task::current() {
            Some(task) => Who::Task(TaskRef::new(task)),
            None => Who::Thread(ThreadParker::of_caller()),
        }
    }

    /// Ends its [`park`], or the next one. Preemption is off.
    #[inline]
    pub(crate) fn wake(self) {
        match self {
            Who::Task(task) => core_state::wake(task),
            Who::Thread(parker) => parker.unpark(),
        }
    }

    /// As one word; never 0, never above `usize::MAX - 64`.
    pub(crate) fn into_word(self) -> usize {
        match self {
            Who::Task(task) => task.addr(),
            Who::Thread(parker) => std::ptr::from_ref(parker) as usize | 1,
        }
    }

    /// Back from [`Who::into_word`].
    ///
    /// # Safety
    /// The word came from there.
    pub(crate) unsafe fn from_word(word: usize) -> Who {
        // SAFETY: by the caller's promise; tasks and parkers are never freed, and aligned, so that bit 0 tells.
        unsafe {
            match word & 1 {
                0 => Who::Task(TaskRef::from_addr(word)),
                _ => Who::Thread(&*((word & !1) as *const ThreadParker)),
            }
        }
    }
}

/// Sleeps until somebody wakes the caller. May return for no reason: callers check what they wait for.
#[inline(always)]
pub(crate) fn park() {
    match Task::current() {
        Some(task) => {
            let _guard = NoPreempt::new();
            leave_for(task, task.sched().park(task));
        }
        None => ThreadParker::of_caller().park(None),
    }
}

/// Like [`park`], but no later than `deadline`.
pub(crate) fn park_until(deadline: Ns) {
    let Some(task) = Task::current() else {
        return ThreadParker::of_caller().park(Some(deadline - clock::now()));
    };
    let _guard = NoPreempt::new();
    let core = task.sched().core();
    let timer = Timer::new(deadline, TaskRef::new(task));
    // SAFETY: a task with preemption off; the timer stays here until it is cancelled, below.
    let earliest = unsafe { core.timers.set(Worker::current().cpu(), &timer) };
    if earliest {
        core.timer_is_earlier();
    }
    leave_for(task, task.sched().park(task));
    core.timers.cancel(&timer);
}
