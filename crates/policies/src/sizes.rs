//! What `sjf` and `srpt` share: how long tasks are expected to run.

use heddle_core::{Cx, TaskId};

/// The size of a task of which nothing is known: above every known one. A quarter of the circle of keys, so that an instant
/// plus a size stays well within the half of which a [`heddle_core::TaskTree`] can tell the order.
pub const UNKNOWN: u64 = 1 << 62;

/// How long `task` is expected to run in all, in nanoseconds.
pub fn expected<T>(cx: &Cx<'_, T>, task: TaskId) -> u64 {
    cx.task(task).attrs().expected.map_or(UNKNOWN, |size| size.0.min(UNKNOWN - 1))
}
