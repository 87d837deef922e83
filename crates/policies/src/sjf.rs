//! `sjf`: shortest job first, each to completion.
//!
//! - **Optimises** the mean response time among policies that never preempt, if sizes are known: the
//!   task that delays the others least goes first. Long tasks may starve.
//! - **Parameters**: none. Sizes are [`heddle_core::TaskAttrs::expected`]; tasks without one come after
//!   all that have one, in order of arrival.
//! - **Complexity**: O(log n) expected to enqueue and dequeue with n waiting tasks; one queue, which
//!   all CPUs share.
//! - **Source**: Smith, Naval Research Logistics Quarterly 3, 1956 (shortest processing time first);
//!   Phipps, Operations Research 4(1), 1956 (the same with arrivals).

use crate::sizes::{UNKNOWN, expected};
use heddle_core::{Cx, Enqueue, Model, ParamError, Params, Policy, TaskId, TaskTree, TreeNode};

/// Shortest job first; see `docs/policies/sjf.md`.
#[derive(Clone, Debug)]
pub struct Sjf;

impl Policy for Sjf {
    type Task = TreeNode;
    type Queue = TaskTree;

    const NAME: &'static str = "sjf";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = true;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Sjf)
    }

    fn queue(&self) -> TaskTree {
        TaskTree::default()
    }

    #[inline]
    fn len(&self, queue: &TaskTree) -> usize {
        queue.len()
    }

    /// A task that yields, or whose commit failed, lets all others pass, whatever its size: otherwise
    /// it would be first again at once, and a task that yields until a longer one is done would wait
    /// forever.
    #[inline]
    fn enqueue(&self, cx: &Cx<'_, TreeNode>, queue: &mut TaskTree, task: TaskId, why: Enqueue) {
        let size = match why {
            Enqueue::Yield | Enqueue::CommitFailed => UNKNOWN,
            _ => expected(cx, task),
        };
        queue.insert(cx.tasks, task, size);
    }

    #[inline]
    fn dequeue(&self, cx: &Cx<'_, TreeNode>, queue: &mut TaskTree) -> Option<TaskId> {
        queue.pop_first(cx.tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness, Promises};
    use heddle_core::{Ns, TaskAttrs};

    /// A harness on which tasks 0, 1, ... have these sizes in us; 0 is unknown.
    fn harness(sizes: &[u64]) -> PolicyHarness<Sjf> {
        let mut harness = PolicyHarness::new("sjf", 1);
        for (task, &us) in (0..).zip(sizes) {
            let expected = Some(Ns::from_us(us));
            harness.init(task, TaskAttrs { expected, ..TaskAttrs::default() });
        }
        harness
    }

    #[test]
    fn keeps_the_rules_of_every_policy_but_fairness() {
        testkit::check_with(|| Sjf, Promises { fair: false });
    }

    #[test]
    fn takes_no_parameters() {
        testkit::check_params::<Sjf>();
    }

    #[test]
    fn the_shortest_goes_first_and_ties_and_unknown_sizes_in_the_order_of_arrival() {
        let mut harness = harness(&[0, 7, 3, 0, 7]);
        (0..5).for_each(|task| harness.enqueue(0, task, Enqueue::New));
        assert_eq!(harness.drain(0), [2, 1, 4, 0, 3]);
        assert_eq!(harness.policy.quantum(), None);
    }

    #[test]
    fn a_yielding_task_goes_behind_all_others() {
        for why in [Enqueue::Yield, Enqueue::CommitFailed] {
            let mut harness = harness(&[1, 9, 0]);
            (1..3).for_each(|task| harness.enqueue(0, task, Enqueue::New));
            harness.enqueue(0, 0, why);
            assert_eq!(harness.drain(0), [1, 2, 0], "{why:?}");
        }
    }
}
