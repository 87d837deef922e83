//! A kernel thread's own context as a task: the program's first thread, for a thread library ([`crate::raw`]).
//!
//! The context keeps its stack and its thread-local variables, and the pointer by which the C library knows the thread.
//! Its kernel thread, the *leader*, goes on with a free task's stack and block, on which it runs what the library gives
//! it: the kernel shows a process whose first thread has ended as dead, and the C library has its number in the
//! descriptor. The context goes back to the leader to end, by the C library's means.

use crate::interpose;
use crate::join;
use crate::pool::{self, DEFAULT_CLASS};
use crate::preempt;
use crate::task::{GUARD, Scheduler, Stack, Task, TaskRef, debug};
use crate::{ambient, tls};
use heddle_arch::{Frame, PreemptCount, fs_base, resume, switch};
use heddle_core::TaskAttrs;
use heddle_sys::clock;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The control block of the context that was adopted last: the child of a fork adopts its copy again.
static ADOPTED: AtomicPtr<Task> = AtomicPtr::new(ptr::null_mut());

/// The block on which the leader runs.
static LEADER: AtomicPtr<Task> = AtomicPtr::new(ptr::null_mut());

/// The calling context, about to become a task.
#[must_use]
pub(crate) struct Adoption {
    task: TaskRef,
    leader: TaskRef,
}

/// What the leader begins with.
struct Leading {
    task: TaskRef,
    lead: fn(),
}

impl Adoption {
    /// Prepares to make the calling context, which runs on `stack`, a task of the process-wide runtime.
    ///
    /// # Errors
    /// The system's, if it has no memory or tasks left.
    pub(crate) fn prepare(stack: Range<usize>) -> io::Result<Adoption> {
        let sched: &'static dyn Scheduler = ambient::process_wide()?;
        let leader = pool::take(DEFAULT_CLASS)?;
        let task = control_block(stack);
        task.get().reset();
        if let Err(error) = sched.admit(task, TaskAttrs::default()) {
            pool::give(DEFAULT_CLASS, [leader].into_iter());
            return Err(error);
        }
        task.get().cpu_time.start_at(clock::thread_cpu_time());
        Ok(Adoption { task, leader })
    }

    pub(crate) fn task(&self) -> TaskRef {
        self.task
    }

    /// Makes the context a task: returns in the task, on a worker. The kernel thread calls `lead`, which returns once
    /// the task is to go back to it ([`go_back`]).
    ///
    /// # Safety
    /// The caller is the context that was prepared. Its kernel thread holds back all signals but the C library's own,
    /// and is not in a signal's handler.
    pub(crate) unsafe fn go(self, lead: fn()) {
        let Adoption { task, leader } = self;
        let task_itself = task.get();
        // The kernel must not write the leader's CPU where the task looks for its own.
        tls::end_restartable_sequences(task_itself.fs);
        LEADER.store(leader.addr() as *mut Task, Ordering::Release);
        interpose::lead(task_itself.fs);
        let leading = Box::into_raw(Box::new(Leading { task, lead }));
        let sp = (leader.get().top.get() - Frame::SIZE) & !63;
        // SAFETY: the leader's stack and block are unused. The task is started when this context is off its stack. From
        // there on a worker runs it, which has locked its queue.
        unsafe {
            (sp as *mut Frame).write(Frame::new(leader_begins, leading as usize));
            switch(task_itself.sp.as_ptr(), sp, leader.get().fs);
            preempt::begin(task_itself);
        }
    }
}

/// Returns the control block for the calling context.
fn control_block(stack: Range<usize>) -> TaskRef {
    let fs = fs_base();
    // SAFETY: null, or a block from below.
    let known = unsafe { ADOPTED.load(Ordering::Acquire).as_ref() };
    if let Some(known) = known.filter(|known| known.fs == fs) {
        return TaskRef::new(known);
    }
    let base = stack.start.saturating_sub(GUARD);
    let own = Stack { base, size: stack.end - base, class: Stack::ADOPTED };
    let task: &'static Task = Box::leak(Box::new(Task::new(fs, own)));
    task.top.set(stack.end);
    debug::add(task);
    ADOPTED.store(ptr::from_ref(task).cast_mut(), Ordering::Release);
    TaskRef::new(task)
}

/// The leader's first function.
extern "C" fn leader_begins(leading: usize) -> ! {
    // SAFETY: `go` boxed it for this call.
    let Leading { task, lead } = *unsafe { Box::from_raw(leading as *mut Leading) };
    task.get().sched().start(task.get().entity());
    lead();
    // The task has asked for this, and is about to end.
    join::wait(task);
    interpose::lead(0);
    // SAFETY: the task has ended in `go_back`: it is off its stack, and no worker runs it again. Nothing uses this
    // stack before it returns there.
    unsafe { resume(task.get().sp.get(), task.get().fs) }
}

/// Ends the calling task, which was adopted: returns in the kernel thread that it was, once the leader's function has
/// returned. Signals are held back there as they were.
pub(crate) fn go_back() {
    let Some(task) = Task::current().filter(|task| task.is_adopted()) else { return };
    let sched = task.sched();
    // SAFETY: a task runs on a worker, whose loop or next task resets the count. The leader resumes the context when
    // its end has been published, which `finish_switch` does in the context after this one.
    unsafe {
        PreemptCount::disable();
        Task::leave_current();
        let next = sched.exit(task);
        switch(task.sp.as_ptr(), next.sp.get(), next.fs);
    }
    let leader = LEADER.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: the block from `prepare`, which nothing runs on any more.
    let leader = unsafe { TaskRef::from_addr(leader as usize) };
    pool::give(DEFAULT_CLASS, [leader].into_iter());
}
