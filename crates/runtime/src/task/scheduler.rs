//! The scheduler's interface to tasks.

use super::{EntityRef, HeaderRef, Liveness, Task, TaskRef};
use crate::liveness::Owned;
use crate::timers::Timer;
use heddle_core::{MarkPhase, TaskAttrs};
use heddle_sys::thread::Blocked;
use std::any::Any;
use std::io;
use std::num::NonZeroUsize;

/// The context to run instead of the calling task. The worker's run queue stays locked until
/// [`crate::switch::leave`] is done, so dropping this would leave it locked forever.
#[must_use]
pub(crate) struct Next {
    /// Never zero, so that an `Option<Next>` is returned in two registers.
    pub(crate) sp: NonZeroUsize,
    pub(crate) fs: usize,
}

/// A mark of a task in recordings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// The number of its name.
    pub(crate) name: u32,
    pub(crate) phase: MarkPhase,
    /// The number of what it belongs to; 0 if there is none.
    pub(crate) of: u64,
}

/// How a poll ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollEnd {
    /// The future waits, or was woken meanwhile.
    Pending,
    /// It has ended, and its output is in place or dropped.
    Ended,
}

/// The scheduler as seen by tasks and their wakers, independent of its policy. The runtime's own threads use
/// [`crate::engine::Engine`]. All methods are called with preemption off; those that take the calling task are called
/// in that task.
pub(crate) trait Scheduler: Owned {
    /// Returns the liveness of the runtime.
    fn liveness(&self) -> &'static Liveness;
    /// Returns the whole runtime, whose type this module does not know; for [`crate::engine::engine_of`].
    fn engine(&self) -> &dyn Any;
    /// Returns the class of stacks whose size is not specified.
    fn default_stack_class(&self) -> u8;
    /// Returns a stack with a slot and attributes for a new task.
    fn prepare(&'static self, class: u8, attrs: TaskAttrs) -> io::Result<TaskRef>;
    /// Gives a task that is in no runtime a slot and attributes.
    fn admit(&'static self, task: TaskRef, attrs: TaskAttrs) -> io::Result<()>;
    /// Returns the attributes of a task of this runtime.
    fn attrs(&self, task: EntityRef) -> TaskAttrs;
    /// Changes the attributes of a task of this runtime. The policy sees them when it next asks.
    fn set_attrs(&self, task: EntityRef, attrs: TaskAttrs);
    /// Makes a prepared task runnable.
    fn start(&'static self, task: EntityRef);
    /// Makes a woken task runnable. The caller was asked to enqueue it by [`heddle_sync::WakeWord::wake`] or
    /// [`heddle_sync::PollWord::wake`].
    fn enqueue_woken(&'static self, task: EntityRef);
    /// Returns memory of size class `class` with a number and attributes for a new future, without its contents.
    fn prepare_future(&'static self, class: u8, attrs: TaskAttrs) -> io::Result<HeaderRef>;
    /// Recycles the memory of a future to which no references remain.
    fn recycle_future(&'static self, future: HeaderRef);
    /// The calling carrier has polled its future, with this outcome, and takes on the next one. Returns what runs
    /// instead, if there is no other future without a context to be polled; it is among the free carriers then.
    fn end_poll(&'static self, task: &'static Task, end: PollEnd) -> Option<Next>;
    /// The calling carrier, taken from the free ones, sees to them.
    fn keep_up(&'static self, task: &'static Task);
    /// The calling task was asked to yield. Puts it back into the queue, unless too many preempted polls exist.
    fn answer_request(&'static self, task: &'static Task) -> Option<Next>;
    /// Returns whether another program is to have the CPU with this index, which is shared.
    fn is_cpu_wanted(&self, cpu: usize) -> bool;
    /// Yields the calling task; `None` if no other task is runnable.
    fn yield_now(&'static self, task: &'static Task) -> Option<Next>;
    /// Parks the calling task until it is woken; `None` if it was woken already.
    fn park(&'static self, task: &'static Task) -> Option<Next>;
    /// [`Scheduler::park`] for a task that waits for a lock, as the `first` for this one or not: the next task may be
    /// one that was preempted lately and may hold it.
    fn park_for_lock(&'static self, task: &'static Task, first: bool) -> Option<Next>;
    /// Sets a timer of the calling task on its CPU.
    ///
    /// # Safety
    /// The timer stays where it is, and is not set again, until [`Scheduler::cancel_timer`].
    unsafe fn set_timer(&self, timer: &Timer<TaskRef>);
    /// Cancels a timer that was set, if it has not fired.
    fn cancel_timer(&self, timer: &Timer<TaskRef>);
    /// Puts the calling task, whose quantum is over, back into the queue.
    fn preempt(&'static self, task: &'static Task) -> Next;
    /// Puts the calling task, whose quantum is over, back into the queue if others wait and the policy agrees.
    fn look_around(&'static self, task: &'static Task) -> Option<Next>;
    /// The calling task slept in the kernel, in `call`, when it was interrupted: gives its CPU away if others wait for
    /// it and a spare worker is there. Returns whether the CPU is gone, or will be.
    fn give_cpu_away(&'static self, task: &'static Task, call: Blocked) -> bool;
    /// Returns whether a reader wants events.
    fn is_recorded(&self) -> bool;
    /// Records a mark of the calling task if a reader wants events. `name` is that of its number.
    fn record_mark(&self, task: &Task, mark: Mark, name: &str);
    /// Ends the calling task; the next context notifies its joiner.
    fn exit(&'static self, task: &'static Task) -> Next;
    /// Wakes the joiner that left `word` with a task that has ended.
    fn wake_joiner(&self, word: usize);
    /// Recycles the block of an ended task to which no references remain.
    fn recycle(&'static self, task: TaskRef);
}
