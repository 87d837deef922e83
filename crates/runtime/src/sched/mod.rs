//! The scheduler: what happens to tasks, under any policy.
//!
//! The one rule: a run queue's lock is taken by the context that leaves the CPU and released by the one that comes next
//! ([`crate::worker::After`]). So whoever finds a task in a queue finds it off its stack, and nobody ever waits for a flag.

mod dispatcher;
mod ops;
mod place;
mod shared;
mod switch;

pub(crate) use dispatcher::run as dispatch;
pub(crate) use shared::Shared;

use crate::core_state::Core;
use crate::join;
use crate::task::{Task, TaskRef};
use crate::worker::{After, Remote, Worker};
use heddle_arch::{PreemptCount, resume, switch};
use heddle_core::{Ns, Resched, TaskAttrs};
use heddle_sync::Ended;
use std::io;
use std::num::NonZeroUsize;

/// The context that runs instead of the calling task. The run queue of the worker is locked until [`leave`] is done, so
/// dropping this instead would stop everything.
#[must_use]
pub(crate) struct Next {
    /// Never zero, so that an optional one is returned in two registers.
    sp: NonZeroUsize,
    fs: usize,
}

/// Leaves the calling task for `next`. Returns when the task runs again, on whatever worker, with preemption off as deep as
/// before.
///
/// Here and not behind the trait, and inlined, for the reason given at [`heddle_arch::switch()`]: a `ret` after the switch is mispredicted.
#[inline(always)]
pub(crate) fn leave(task: &'static Task, next: Next) {
    // SAFETY: a task runs on a worker.
    let depth = unsafe { PreemptCount::depth() };
    // SAFETY: `next` belongs to a context that is off CPU: a task that was queued under the lock, or the loop of this very
    // worker. The lock is held until `finish_switch`.
    unsafe { switch(task.sp.as_ptr(), next.sp.get(), next.fs) };
    // First: what was pending was meant for others, what `finish_switch` asks for is meant for this task.
    // SAFETY: as above, perhaps another worker.
    unsafe {
        PreemptCount::set_depth(depth);
        finish_switch();
    }
}

/// [`leave`], if there is anything to leave for.
#[inline(always)]
pub(crate) fn leave_for(task: &'static Task, next: Option<Next>) {
    if let Some(next) = next {
        leave(task, next);
    }
}

/// Leaves the calling task, which has ended, for `next`.
pub(crate) fn leave_for_good(next: Next) -> ! {
    // SAFETY: as in `leave`; nobody has the stack pointer of a task that has ended.
    unsafe { resume(next.sp.get(), next.fs) }
}

/// The context that was switched to completes the switch: does what the one that left asked for ([`After`]) and releases
/// the lock that it took. No call behind the trait: every switch pays for this.
///
/// # Safety
/// The caller is a task or a worker's loop, right after a switch, with preemption off.
#[inline(always)]
pub(crate) unsafe fn finish_switch() {
    // SAFETY: by the caller's promise.
    let worker = unsafe { Worker::current() };
    match worker.after.get() {
        After::Unlock => {}
        After::Park(task) => task.get().wake.finish_park(),
        After::Exit { task, woken } => return finish_exit(worker, task, woken),
    }
    worker.release();
}

/// The end of [`finish_switch`] where `task` has ended.
fn finish_exit(worker: &Worker, task: TaskRef, woken: bool) {
    // Before the unlock: whoever was woken for this may run right after it, and sees the end.
    let ended = match woken {
        true => {
            task.get().end.publish_woken();
            Ended::Nothing
        }
        false => task.get().end.publish(),
    };
    worker.release();
    join::follow_up(task, ended);
}

/// What the rest of the runtime asks of a scheduler, whatever its policy. Preemption is off in all calls; where a method
/// wants the calling task, it is called in that task.
pub(crate) trait Scheduler: Send + Sync {
    /// The parts that do not depend on the policy.
    fn core(&self) -> &Core;
    /// A stack with a slot and attributes for a task to come.
    fn prepare(&'static self, class: u8, attrs: TaskAttrs) -> io::Result<TaskRef>;
    /// A prepared task may run.
    fn start(&'static self, task: TaskRef);
    /// A woken task may run: [`heddle_sync::WakeWord::wake`] said that it is the caller's to enqueue.
    fn enqueue_woken(&'static self, task: TaskRef);
    /// The calling task lets others run; `None` if nobody else wants to.
    fn yield_now(&'static self, task: &'static Task) -> Option<Next>;
    /// The calling task sleeps until it is woken; `None` if it was woken already.
    fn park(&'static self, task: &'static Task) -> Option<Next>;
    /// The calling task goes back to the queue because its time is up.
    fn preempt(&'static self, task: &'static Task) -> Next;
    /// The calling task's quantum is over: it goes back to the queue if others wait and the policy says so.
    fn look_around(&'static self, task: &'static Task) -> Option<Next>;
    /// The calling task has ended; the next context tells whoever waits for that.
    fn exit(&'static self, task: &'static Task) -> Next;
    /// Nobody needs the block of an ended task any more.
    fn recycle(&'static self, task: TaskRef);
    /// The loop of a kernel thread, as long as it serves a CPU.
    fn serve(&'static self, worker: &'static Worker);
    /// Asks the policy whether the task that `worker` runs has to go after `ran`; `None` if the queue is in use.
    fn tick(&self, worker: &Remote, ran: Ns) -> Option<Resched>;
    /// Takes the CPU from `worker` if it still runs its task number `generation`; true if so. Under the queue's lock, so
    /// that the worker finds out before it can touch the queue.
    fn detach(&self, worker: &Remote, generation: u64) -> bool;
    /// Whether anything waits for the CPU with this index.
    fn is_work_waiting(&self, cpu: usize) -> bool;
    /// Lets a central policy hand out tasks; whether it did. For the dispatcher.
    fn dispatch_round(&self) -> bool;
    /// Whether a dispatch round would do something, or the runtime stops.
    fn is_dispatch_due(&self) -> bool;
    /// Whether no task is queued or runs.
    fn is_drained(&self) -> bool;
    /// The runtime is over: whoever waits for the end of a task that has not ended is told so. Preemption may be on.
    fn abandon_tasks(&self);
    /// All threads have ended: aborts if the policy was given a task that it neither proposed nor counts.
    fn refuse_lost_tasks(&self);
    /// Takes into the queues what was left in their inboxes.
    #[cfg(virtual_time)]
    fn take_inboxes(&self);
    /// Lengths of all run queues.
    fn queue_lengths(&self) -> Vec<usize>;
}
