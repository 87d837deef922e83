//! What the calling task has told its policy about itself.

use crate::preempt::NoPreempt;
use crate::task::{EntityRef, Scheduler, Task};
use heddle_core::TaskAttrs;

/// Returns the attributes of the calling task, a thread or an async task; those of a task without attributes in an
/// ordinary thread.
pub fn attrs() -> TaskAttrs {
    with_current(|sched, task| sched.attrs(task)).unwrap_or_default()
}

/// Sets the attributes of the calling task, a thread or an async task, until they are set again. The policy sees them
/// when it next asks: when the task is next enqueued, or its quantum has passed. In an ordinary thread it does nothing.
///
/// A task that serves a connection tells by this what each request is:
///
/// ```
/// use heddle_rt::{Class, Ns, TaskAttrs};
/// # let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
/// # runtime.block_on(async {
/// # let is_scan = true;
/// heddle_rt::set_attrs(match is_scan {
///     true => TaskAttrs { class: Class::BE, expected: Some(Ns::from_us(700)), ..TaskAttrs::default() },
///     false => TaskAttrs::default(),
/// });
/// heddle_rt::futures::yield_now().await; // queued as what it is now
/// # assert_eq!(heddle_rt::attrs().class, Class::BE);
/// # });
/// # Ok::<(), heddle_rt::ConfigError>(())
/// ```
pub fn set_attrs(attrs: TaskAttrs) {
    with_current(|sched, task| sched.set_attrs(task, attrs));
}

fn with_current<R>(f: impl FnOnce(&'static dyn Scheduler, EntityRef) -> R) -> Option<R> {
    let _guard = NoPreempt::new();
    Task::current().map(|task| f(task.sched(), task.entity()))
}
