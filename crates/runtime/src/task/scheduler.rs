//! What tasks ask of their scheduler.

use super::{Liveness, Task, TaskRef};
use crate::liveness::Owned;
use crate::timers::Timer;
use heddle_core::TaskAttrs;
use std::any::Any;
use std::io;
use std::num::NonZeroUsize;

/// The context that runs instead of the calling task. The worker's run queue stays locked until
/// [`crate::switch::leave`] is done, so dropping this instead would stop everything.
#[must_use]
pub(crate) struct Next {
    /// Never zero, so that an `Option<Next>` is returned in two registers.
    pub(crate) sp: NonZeroUsize,
    pub(crate) fs: usize,
}

/// A scheduler as tasks, and what wakes them, see it, whatever its policy. It knows tasks only; what the runtime's
/// own threads ask is in [`crate::engine::Engine`]. Preemption is off in all calls; a method that takes the calling
/// task is called in that task.
pub(crate) trait Scheduler: Owned {
    /// Whether the runtime still exists.
    fn liveness(&self) -> &'static Liveness;
    /// The whole runtime, for [`crate::engine::engine_of`]: of a type that this module does not know.
    fn engine(&self) -> &dyn Any;
    /// The class of a stack whose size is not specified.
    fn default_stack_class(&self) -> u8;
    /// Returns a stack with a slot and attributes for a new task.
    fn prepare(&'static self, class: u8, attrs: TaskAttrs) -> io::Result<TaskRef>;
    /// Makes a prepared task runnable.
    fn start(&'static self, task: TaskRef);
    /// Makes a woken task runnable: [`heddle_sync::WakeWord::wake`] has told the caller to enqueue it.
    fn enqueue_woken(&'static self, task: TaskRef);
    /// The calling task lets others run; `None` if no other task wants to.
    fn yield_now(&'static self, task: &'static Task) -> Option<Next>;
    /// The calling task sleeps until it is woken; `None` if it was woken already.
    fn park(&'static self, task: &'static Task) -> Option<Next>;
    /// Sets a timer of the calling task on its CPU.
    ///
    /// # Safety
    /// The timer stays where it is, and is not set again, until [`Scheduler::cancel_timer`].
    unsafe fn set_timer(&self, timer: &Timer<TaskRef>);
    /// Cancels a timer that was set, if it has not fired.
    fn cancel_timer(&self, timer: &Timer<TaskRef>);
    /// The calling task returns to the queue because its time is up.
    fn preempt(&'static self, task: &'static Task) -> Next;
    /// The quantum of the calling task is over: it returns to the queue if others wait and the policy says so.
    fn look_around(&'static self, task: &'static Task) -> Option<Next>;
    /// The calling task has ended; the next context notifies the task's joiner.
    fn exit(&'static self, task: &'static Task) -> Next;
    /// Wakes the joiner that left `word` with a task that has ended.
    fn wake_joiner(&self, word: usize);
    /// Takes back the block of an ended task that nothing refers to any more.
    fn recycle(&'static self, task: TaskRef);
}
