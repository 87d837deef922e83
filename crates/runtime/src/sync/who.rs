//! Who waits: a task or an ordinary thread.

use crate::core_state;
use crate::preempt::NoPreempt;
use crate::sched::leave_for;
use crate::task::{Task, TaskRef};
use crate::timers::Timer;
use crate::worker::Worker;
use heddle_core::Ns;
use heddle_sys::clock;
use std::thread::Thread;

/// A party that can be woken.
pub(crate) enum Who {
    Task(TaskRef),
    Thread(Box<Thread>),
}

impl Who {
    /// The caller.
    #[inline]
    pub(crate) fn current() -> Who {
        match Task::current() {
            Some(task) => Who::Task(TaskRef::new(task)),
            None => Who::Thread(Box::new(std::thread::current())),
        }
    }

    /// Ends its [`park`], or the next one. Preemption is off.
    #[inline]
    pub(crate) fn wake(self) {
        match self {
            Who::Task(task) => core_state::wake(task),
            Who::Thread(thread) => thread.unpark(),
        }
    }

    /// As one word that owns the party; never 0, never above `usize::MAX - 64`.
    pub(crate) fn into_word(self) -> usize {
        match self {
            Who::Task(task) => task.addr(),
            Who::Thread(thread) => Box::into_raw(thread) as usize | 1,
        }
    }

    /// Back from [`Who::into_word`].
    ///
    /// # Safety
    /// The word came from there and is turned back once.
    pub(crate) unsafe fn from_word(word: usize) -> Who {
        // SAFETY: by the caller's promise; task blocks are aligned to 64, so bit 0 tells.
        unsafe {
            match word & 1 {
                0 => Who::Task(TaskRef::from_addr(word)),
                _ => Who::Thread(Box::from_raw((word & !1) as *mut Thread)),
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
        None => std::thread::park(),
    }
}

/// Like [`park`], but no later than `deadline`.
pub(crate) fn park_until(deadline: Ns) {
    let Some(task) = Task::current() else {
        return std::thread::park_timeout((deadline - clock::now()).into());
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
