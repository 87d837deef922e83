//! Carriers: the contexts that poll futures.
//!
//! A carrier is a stack with thread-local storage, like a thread's, but not a task of its own: it runs the future that
//! it carries. After a poll it takes on the next future that the policy chooses, without a switch. If that is a task
//! with a context of its own, a thread or a future in the middle of a poll, the carrier switches to it and is free: it
//! joins the list of its run queue, under whose lock it leaves its stack. Who picks a future without a context takes a
//! carrier from there.
//!
//! A poll that is preempted, or waits, keeps its carrier with all that is on its stack and in its thread-local
//! variables. So a poll sees one `thread_local!`, one errno and one `std::thread::current` from start to end, whatever
//! worker runs it; the next poll may see others.
//!
//! A worker between two tasks must not allocate (`threads`), so carriers are made ahead: one that was taken from a list
//! and leaves too few there makes another before it polls. One too many is ended: it runs as a thread that has nothing
//! to do but its destructors of thread-local variables.

pub(crate) mod error;
pub(crate) mod hooks;
pub(crate) mod typed;
mod waker;

pub(crate) use waker::{call_waker, trust};

use crate::end;
use crate::pool;
use crate::preempt::{self, take_pending};
use crate::switch::leave;
use crate::task::{HeaderRef, NO_ID, PollEnd, Scheduler, Task, TaskRef, Upkeep, Vtable};
use heddle_arch::{Frame, PreemptCount};
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Waker};

/// Makes a carrier of the runtime of `sched`, with a stack of `class`.
///
/// # Errors
/// The system's, if it has no memory.
pub(crate) fn make(sched: &'static dyn Scheduler, class: u8) -> io::Result<TaskRef> {
    let carrier = pool::take(class)?;
    let task = carrier.get();
    task.reset();
    task.adopt(sched, NO_ID);
    hooks::call(|hooks| (hooks.made)(carrier));
    let sp = (task.top.get() - Frame::SIZE) & !63;
    // SAFETY: the stack of a block that is ours alone; aligned, and with room.
    unsafe { (sp as *mut Frame).write(Frame::new(run, carrier.addr())) };
    task.sp.set(sp);
    Ok(carrier)
}

/// The first function of a carrier.
extern "C" fn run(carrier: usize) -> ! {
    // SAFETY: `make` passed this block; it has its FS, and is on a worker right after a switch.
    let task = unsafe {
        let task = TaskRef::from_addr(carrier).get();
        preempt::begin(task);
        task
    };
    hooks::call(|hooks| (hooks.begins)());
    loop {
        see_to_others(task);
        // The future is taken anew each time: this context belongs to no one between two polls.
        let Some(future) = HeaderRef::of(task.entity()) else { break };
        let end = future.run();
        poll_next(task, end);
    }
    // One too many, and a thread now.
    hooks::call(|hooks| (hooks.ends)());
    end::end_thread(task)
}

/// Does what a carrier is to do before it polls.
#[inline(always)]
fn see_to_others(task: &'static Task) {
    if task.upkeep.get() != Upkeep::None {
        // SAFETY: a task runs on a worker.
        unsafe { PreemptCount::disable() };
        task.sched().keep_up(task);
        task.upkeep.set(Upkeep::None);
        enable();
    }
}

/// Ends a poll, and returns when `task` carries another future, or is a thread.
#[inline(always)]
fn poll_next(task: &'static Task, end: PollEnd) {
    // Whatever sections the poll has left open end with it. A pending request is answered by the end of the poll.
    // SAFETY: a task runs on a worker.
    unsafe { PreemptCount::set_depth(1) };
    if let Some(next) = task.sched().end_poll(task, end) {
        leave(task, next);
    }
    enable();
}

#[inline(always)]
fn enable() {
    // SAFETY: a task runs on a worker, and the caller has held preemption off.
    if unsafe { PreemptCount::enable() } {
        take_pending();
    }
}

impl HeaderRef {
    /// Polls the future in the calling carrier, which has it, or drops it if it was cancelled. Wakes the handle if that
    /// is its end.
    #[inline(always)]
    fn run(self) -> PollEnd {
        let header = self.get();
        let vtable = header.vtable.get();
        // SAFETY: the state says that the future is there and is this context's to poll. The waker is only borrowed: it
        // has no reference of its own and drops none.
        let has_ended = unsafe {
            if header.state.begin_poll() {
                let waker = ManuallyDrop::new(Waker::from_raw(self.raw_waker()));
                (vtable.poll)(self, &mut Context::from_waker(&waker))
            } else {
                (vtable.cancel)(self);
                true
            }
        };
        match has_ended {
            true => {
                self.end(vtable);
                PollEnd::Ended
            }
            false => PollEnd::Pending,
        }
    }

    #[inline(always)]
    fn end(self, vtable: &'static Vtable) {
        let ended = self.get().state.end();
        // SAFETY: the state says whose output and waker are.
        unsafe {
            if ended.drop_output {
                (vtable.drop_output)(self);
            }
            if ended.wake {
                let waker = self.take_waker();
                // The panic of another library's waker has been reported by the panic hook.
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
        }
    }
}
