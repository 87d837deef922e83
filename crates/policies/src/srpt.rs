//! `srpt`: shortest remaining processing time first.
//!
//! - **Optimises** the mean response time among all policies, if sizes are known. A short newcomer
//!   takes the CPU of the longest running task. Long tasks may starve, though under heavy-tailed sizes
//!   even they rarely fare worse than under processor sharing.
//! - **Parameters**: none. Sizes are [`heddle_core::TaskAttrs::expected`], the time that a task is
//!   expected to run in total, across its sleeps; tasks without one come after all that have one, in
//!   order of arrival.
//! - **Complexity**: O(log n) expected to enqueue and dequeue with n waiting or running tasks; one
//!   queue, which all CPUs share.
//! - **Source**: Schrage, Operations Research 16(3), 1968 (optimality); Bansal and Harchol-Balter,
//!   SIGMETRICS 2001 (unfairness); Dell'Amico, Carra and Michiardi, "PSBS", 2015 (what late jobs do to
//!   a policy that believes their sizes).
//!
//! # Which task is preempted
//! All CPUs run at the same speed, so of two running tasks the one with more work left always ends
//! later: running tasks are kept in a tree by the instant at which they would end, and the last of them
//! is preempted.

use crate::sizes::{UNKNOWN, expected};
use heddle_core::{CpuId, Cx, Enqueue, Model, Ns, ParamError, Params, Policy};
use heddle_core::{TaskId, TaskTree, TreeNode, TreeTask, Var};

/// Shortest remaining processing time; see `docs/policies/srpt.md`.
#[derive(Clone, Debug)]
pub struct Srpt;

/// Per-task state.
#[derive(Debug, Default)]
pub struct Job {
    node: TreeNode,
    /// Its expected remaining time when it last left a CPU, in nanoseconds.
    remaining: Var,
    /// The number of the CPU that runs it, plus one; zero if it does not run.
    on: Var,
    /// When it started running.
    since: Var<Ns>,
}

impl TreeTask for Job {
    fn node(&self) -> &TreeNode {
        &self.node
    }
}

/// The tasks of all CPUs.
#[derive(Debug, Default)]
pub struct Jobs {
    /// By remaining time.
    waiting: TaskTree,
    /// By end time.
    running: TaskTree,
}

impl Jobs {
    /// Records that `task` runs on `cx.cpu` from now on.
    fn start(&mut self, cx: &Cx<'_, Job>, task: TaskId) {
        let (job, now) = (&cx.task(task).policy, cx.now());
        job.on.set(u64::from(cx.cpu.0) + 1);
        job.since.set(now);
        self.running.insert(cx.tasks, task, now.0.wrapping_add(job.remaining.get()));
    }

    /// Records that `task` stopped running, if it ran.
    fn stop(&mut self, cx: &Cx<'_, Job>, task: TaskId) {
        if cx.task(task).policy.on.get() != 0 {
            cx.task(task).policy.on.set(0);
            self.running.remove(cx.tasks, task);
        }
    }
}

/// Deducts from the remaining time of `task` the time that it has run. The size of a task that outran
/// its estimate becomes unknown: if it counted as nearly done, it would hold a CPU against all others
/// until it ends.
fn deduct(cx: &Cx<'_, Job>, task: TaskId) {
    let job = &cx.task(task).policy;
    let remaining = job.remaining.get();
    if job.on.get() != 0 && remaining != UNKNOWN {
        let ran = cx.now() - job.since.get();
        job.remaining.set(if ran.0 < remaining { remaining - ran.0 } else { UNKNOWN });
    }
}

impl Policy for Srpt {
    type Task = Job;
    type Queue = Jobs;

    const NAME: &'static str = "srpt";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = true;
    const PREEMPTS: bool = true;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Srpt)
    }

    fn queue(&self) -> Jobs {
        Jobs::default()
    }

    #[inline]
    fn len(&self, queue: &Jobs) -> usize {
        queue.waiting.len()
    }

    fn task_init(&self, cx: &Cx<'_, Job>, task: TaskId) {
        cx.task(task).policy.remaining.set(expected(cx, task));
        cx.task(task).policy.on.set(0);
    }

    /// A task that yields, or whose commit failed, lets all others pass, whatever its remaining time:
    /// otherwise it would be first again at once, and a task that yields until a longer one is done
    /// would wait forever.
    fn enqueue(&self, cx: &Cx<'_, Job>, queue: &mut Jobs, task: TaskId, why: Enqueue) {
        if why != Enqueue::CommitFailed {
            deduct(cx, task);
        }
        queue.stop(cx, task);
        let key = match why {
            Enqueue::Yield | Enqueue::CommitFailed => UNKNOWN,
            _ => cx.task(task).policy.remaining.get(),
        };
        queue.waiting.insert(cx.tasks, task, key);
    }

    fn dequeue(&self, cx: &Cx<'_, Job>, queue: &mut Jobs) -> Option<TaskId> {
        let task = queue.waiting.pop_first(cx.tasks)?;
        queue.start(cx, task);
        Some(task)
    }

    fn block(&self, cx: &Cx<'_, Job>, queue: &mut Jobs, task: TaskId) {
        deduct(cx, task);
        queue.stop(cx, task);
    }

    fn task_exit(&self, cx: &Cx<'_, Job>, queue: &mut Jobs, task: TaskId) {
        queue.stop(cx, task);
    }

    /// Preempts the running task with the most work left if it has more left than the newcomer. Its CPU
    /// counts as running the newcomer from then on: the next newcomer picks another CPU even if this
    /// one has not been notified yet.
    fn preempt(&self, cx: &Cx<'_, Job>, queue: &mut Jobs, task: TaskId) -> Option<CpuId> {
        let ends = cx.now().0.wrapping_add(cx.task(task).policy.remaining.get());
        let longest = queue.running.last(cx.tasks)?;
        let job = &cx.task(longest).policy;
        let longer = (job.node.key().wrapping_sub(ends) as i64) > 0;
        longer.then(|| {
            queue.running.remove(cx.tasks, longest);
            queue.running.insert(cx.tasks, longest, ends);
            CpuId((job.on.get() - 1) as u16)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness, Promises};
    use heddle_core::TaskAttrs;

    fn us(n: u64) -> Ns {
        Ns::from_us(n)
    }

    /// A harness on which tasks 0, 1, ... have these sizes in us (0 is unknown) and the first ones run,
    /// one per CPU.
    fn harness(cpus: u16, sizes: &[u64]) -> PolicyHarness<Srpt> {
        let mut harness = PolicyHarness::new("srpt", usize::from(cpus));
        for (task, &size) in (0..).zip(sizes) {
            let expected = Some(us(size));
            harness.init(task, TaskAttrs { expected, ..TaskAttrs::default() });
        }
        for cpu in 0..cpus {
            harness.enqueue(cpu, cpu.into(), Enqueue::New);
            assert_eq!(harness.dequeue(cpu), Some(cpu.into()));
        }
        harness
    }

    #[test]
    fn keeps_the_rules_of_every_policy_but_fairness() {
        testkit::check_with(|| Srpt, Promises { fair: false });
    }

    #[test]
    fn takes_no_parameters() {
        testkit::check_params::<Srpt>();
    }

    #[test]
    fn time_run_shortens_the_remainder() {
        let mut harness = harness(1, &[10, 8, 3]);
        harness.enqueue(0, 1, Enqueue::New);
        harness.set_now(us(5));
        harness.enqueue(0, 2, Enqueue::New);
        harness.enqueue(0, 0, Enqueue::Preempted);
        assert_eq!(harness.drain(0), [2, 0, 1], "3, 5 and 8 us are left");
    }

    #[test]
    fn time_run_before_a_sleep_shortens_the_remainder() {
        let mut harness = harness(1, &[10, 8]);
        harness.set_now(us(5));
        harness.block(0, 0);
        harness.set_now(us(500));
        harness.enqueue(0, 1, Enqueue::New);
        harness.enqueue(0, 0, Enqueue::Wakeup);
        assert_eq!(harness.drain(0), [0, 1]);
    }

    #[test]
    fn the_longest_running_task_makes_way_for_a_shorter_one_only() {
        let mut harness = harness(3, &[10, 30, 20, 25]);
        harness.set_now(us(6));
        harness.enqueue(0, 3, Enqueue::New);
        assert_eq!(harness.preempt(0, 3), None, "24 us are left of the longest");
        harness.set_now(us(4));
        assert_eq!(harness.preempt(0, 3), Some(1));
    }

    #[test]
    fn two_short_newcomers_ask_two_cpus() {
        let mut harness = harness(3, &[10, 30, 20, 1, 2, 15]);
        let mut asked = |task| {
            harness.enqueue(0, task, Enqueue::New);
            harness.preempt(0, task)
        };
        assert_eq!([asked(3), asked(4), asked(5)], [Some(1), Some(2), None]);
    }

    #[test]
    fn an_unknown_size_makes_way_for_any_and_any_for_none() {
        let mut harness = harness(2, &[0, 50, 1_000, 0]);
        harness.enqueue(0, 3, Enqueue::New);
        assert_eq!(harness.preempt(0, 3), None);
        harness.enqueue(0, 2, Enqueue::New);
        assert_eq!(harness.preempt(0, 2), Some(0));
    }

    #[test]
    fn a_task_that_outruns_its_estimate_has_an_unknown_size() {
        let mut harness = harness(1, &[10, 500]);
        harness.enqueue(0, 1, Enqueue::New);
        harness.set_now(us(11));
        harness.enqueue(0, 0, Enqueue::Preempted);
        assert_eq!(harness.drain(0), [1, 0]);
    }

    #[test]
    fn a_failed_commit_costs_nothing_but_the_turn() {
        let mut harness = harness(1, &[10, 500, 20]);
        harness.set_now(us(9));
        harness.enqueue(0, 0, Enqueue::CommitFailed);
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(harness.dequeue(0), Some(1));
        assert_eq!(harness.dequeue(0), Some(0));
        harness.enqueue(0, 0, Enqueue::Preempted);
        harness.enqueue(0, 2, Enqueue::New);
        assert_eq!(harness.dequeue(0), Some(0), "10 us are left, as before");
    }
}
