//! A waiting party, which is a task or an ordinary thread, and how it parks.

use crate::preempt::NoPreempt;
use crate::switch::leave_for;
use crate::sync::thread_parker::ThreadParker;
use crate::task::{Task, TaskRef};
use crate::timers::Timer;
use crate::wake::wake;
use heddle_core::Ns;
use heddle_sys::clock;

/// A party that can be woken.
#[derive(Clone, Copy)]
pub(crate) enum Waiter {
    Task(TaskRef),
    Thread(&'static ThreadParker),
}

impl Waiter {
    /// The caller.
    #[inline]
    pub(crate) fn current() -> Waiter {
        match Task::current() {
            Some(task) => Waiter::Task(TaskRef::new(task)),
            None => Waiter::Thread(ThreadParker::of_caller()),
        }
    }

    /// Ends its [`park`], or the next one. Preemption is off.
    #[inline]
    pub(crate) fn wake(self) {
        match self {
            Waiter::Task(task) => wake(task),
            Waiter::Thread(parker) => parker.unpark(),
        }
    }

    /// Like [`Waiter::wake`], for callers that can be preempted.
    pub(crate) fn notify(self) {
        let _guard = NoPreempt::new();
        self.wake();
    }

    /// The party as one word: never 0, never above `usize::MAX - 64`, with bits 1 to 5 clear.
    pub(crate) fn into_word(self) -> usize {
        match self {
            Waiter::Task(task) => task.addr(),
            Waiter::Thread(parker) => std::ptr::from_ref(parker) as usize | 1,
        }
    }

    /// The inverse of [`Waiter::into_word`].
    ///
    /// # Safety
    /// The word came from there.
    pub(crate) unsafe fn from_word(word: usize) -> Waiter {
        // SAFETY: by the caller's promise; tasks and parkers are never freed, and aligned, so bit 0 tells them apart.
        unsafe {
            match word & 1 {
                0 => Waiter::Task(TaskRef::from_addr(word)),
                _ => Waiter::Thread(&*((word & !1) as *const ThreadParker)),
            }
        }
    }
}

/// Sleeps until the caller is woken. May return spuriously: callers check their condition.
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

/// Like [`park`], for a task that waits for a lock, as the `first` for this one or not.
pub(crate) fn park_for_lock(first: bool) {
    let task = Task::current().expect("the caller is a task");
    let _guard = NoPreempt::new();
    leave_for(task, task.sched().park_for_lock(task, first));
}

/// Like [`park`], but no later than `deadline`.
pub(crate) fn park_until(deadline: Ns) {
    let Some(task) = Task::current() else {
        return ThreadParker::of_caller().park(Some(deadline - clock::now()));
    };
    let _guard = NoPreempt::new();
    let timer = Timer::new(deadline, TaskRef::new(task));
    // SAFETY: a task with preemption off; the timer stays here until it is cancelled, below.
    unsafe { task.sched().set_timer(&timer) };
    leave_for(task, task.sched().park(task));
    task.sched().cancel_timer(&timer);
}

/// How long a wait may last.
pub(crate) trait Limit: Copy {
    /// Parks the caller and returns true; returns false without parking once the wait is over. May return true
    /// spuriously.
    fn park(self) -> bool;
}

/// No later than this time, if there is one.
impl Limit for Option<Ns> {
    #[inline(always)]
    fn park(self) -> bool {
        match self {
            None => park(),
            Some(at) if clock::now() < at => park_until(at),
            Some(_) => return false,
        }
        true
    }
}
