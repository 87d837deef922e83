//! Shared by `sjf` and `srpt`: how long tasks are expected to run.

use heddle_core::{Cx, TaskId};

/// The size of a task of unknown size: above every known one. A quarter of the circle of keys, so that
/// an instant plus a size stays well within the half in which a [`heddle_core::TaskTree`] can compare.
pub const UNKNOWN: u64 = 1 << 62;

/// Returns how long `task` is expected to run in total, in nanoseconds.
pub fn expected<T>(cx: &Cx<'_, T>, task: TaskId) -> u64 {
    cx.task(task).attrs().expected.map_or(UNKNOWN, |size| size.0.min(UNKNOWN - 1))
}
