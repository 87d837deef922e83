//! `edf`: earliest deadline first on all CPUs; a newcomer with an earlier deadline preempts the task
//! with the latest.
//!
//! - **Optimises** the number of deadlines met: on one CPU, if any order meets all, this one does.
//! - **Parameters**: `relative` (default 1ms): when a task of class LC without a deadline is due,
//!   counted from its arrival or wakeup; `others` (default ten times `relative`), the same for the
//!   other classes; `quantum` (default 100us), how long a task runs at least before an expired deadline
//!   makes it yield.
//! - **Complexity**: O(log n) expected for every operation, with n waiting or running tasks; one queue,
//!   which all CPUs share.
//! - **Source**: Liu and Layland, Journal of the ACM 20(1), 1973. ghOSt (section 3.3) has EDF among its
//!   policies.
//!
//! # Expired deadlines
//! A late task holds up others that could still be in time, and these the next: under overload, plain
//! EDF is late with all. And an endless task, once late, would hold its CPU forever. So an expired
//! deadline is worth nothing: from then on the task has a new one, as if it had come without a
//! deadline.

use heddle_core::{Class, CpuId, Cx, Enqueue, Model, Ns, ParamError, Params, Policy};
use heddle_core::{Resched, TaskId, TaskTree, TreeNode, TreeTask, Var};

/// Earliest deadline first; see `docs/policies/edf.md`.
#[derive(Clone, Debug)]
pub struct Edf {
    relative: Ns,
    others: Ns,
    quantum: Ns,
}

/// Per-task state.
#[derive(Debug, Default)]
pub struct Job {
    node: TreeNode,
    deadline: Var<Ns>,
    /// The number of the CPU that runs it, plus one; zero if it does not run.
    on: Var,
}

impl TreeTask for Job {
    fn node(&self) -> &TreeNode {
        &self.node
    }
}

/// The tasks of all CPUs, by deadline.
#[derive(Debug, Default)]
pub struct Jobs {
    waiting: TaskTree,
    running: TaskTree,
}

impl Jobs {
    /// Records that `task` stopped running, if it ran.
    fn stop(&mut self, cx: &Cx<'_, Job>, task: TaskId) {
        if cx.task(task).policy.on.get() != 0 {
            cx.task(task).policy.on.set(0);
            self.running.remove(cx.tasks, task);
        }
    }

    /// Returns the latest deadline of the waiting tasks.
    fn last_key(&self, cx: &Cx<'_, Job>) -> Option<u64> {
        self.waiting.last(cx.tasks).map(|last| cx.task(last).policy.node.key())
    }
}

impl Edf {
    /// Returns when `task` is due if its work begins, or continues after a deadline, now.
    fn due(&self, cx: &Cx<'_, Job>, task: TaskId, now: Ns) -> Ns {
        let attrs = cx.task(task).attrs();
        let relative = if attrs.class == Class::LC { self.relative } else { self.others };
        attrs.deadline.filter(|&deadline| deadline > now).unwrap_or(now + relative)
    }
}

impl Policy for Edf {
    type Task = Job;
    type Queue = Jobs;

    const NAME: &'static str = "edf";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = true;
    const PREEMPTS: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        let relative = params.ns("relative", Ns::from_ms(1))?;
        let others = params.ns("others", relative * 10)?;
        Ok(Edf { relative, others, quantum: params.ns("quantum", Ns::from_us(100))? })
    }

    fn queue(&self) -> Jobs {
        Jobs::default()
    }

    #[inline]
    fn len(&self, queue: &Jobs) -> usize {
        queue.waiting.len()
    }

    fn quantum(&self) -> Option<Ns> {
        Some(self.quantum)
    }

    fn task_init(&self, cx: &Cx<'_, Job>, task: TaskId) {
        cx.task(task).policy.on.set(0);
    }

    /// A task that yields, or whose commit failed, goes behind all waiting tasks whatever its deadline;
    /// otherwise it would be first again at once.
    fn enqueue(&self, cx: &Cx<'_, Job>, queue: &mut Jobs, task: TaskId, why: Enqueue) {
        let (job, now) = (&cx.task(task).policy, cx.now());
        queue.stop(cx, task);
        if matches!(why, Enqueue::New | Enqueue::Wakeup) || job.deadline.get() <= now {
            job.deadline.set(self.due(cx, task, now));
        }
        let deadline = job.deadline.get().0;
        let passes = matches!(why, Enqueue::Yield | Enqueue::CommitFailed);
        let last = queue.last_key(cx).filter(|_| passes).unwrap_or(deadline);
        queue.waiting.insert(cx.tasks, task, deadline.max(last));
    }

    fn dequeue(&self, cx: &Cx<'_, Job>, queue: &mut Jobs) -> Option<TaskId> {
        let task = queue.waiting.pop_first(cx.tasks)?;
        let job = &cx.task(task).policy;
        job.on.set(u64::from(cx.cpu.0) + 1);
        queue.running.insert(cx.tasks, task, job.deadline.get().0);
        Some(task)
    }

    fn block(&self, cx: &Cx<'_, Job>, queue: &mut Jobs, task: TaskId) {
        queue.stop(cx, task);
    }

    fn task_exit(&self, cx: &Cx<'_, Job>, queue: &mut Jobs, task: TaskId) {
        queue.stop(cx, task);
    }

    /// Preempts the running task with the latest deadline if that is later than the newcomer's. Its CPU
    /// counts as running the newcomer from then on: the next newcomer picks another CPU even if this
    /// one has not been notified yet.
    fn preempt(&self, cx: &Cx<'_, Job>, queue: &mut Jobs, task: TaskId) -> Option<CpuId> {
        let deadline = cx.task(task).policy.deadline.get().0;
        let latest = queue.running.last(cx.tasks)?;
        let job = &cx.task(latest).policy;
        (job.node.key() > deadline).then(|| {
            queue.running.remove(cx.tasks, latest);
            queue.running.insert(cx.tasks, latest, deadline);
            CpuId((job.on.get() - 1) as u16)
        })
    }

    /// Once its deadline has expired and it has had its quantum, a task yields to those due before its
    /// next deadline.
    fn tick(&self, cx: &Cx<'_, Job>, queue: &mut Jobs, task: TaskId, ran: Ns) -> Resched {
        let (job, now) = (&cx.task(task).policy, cx.now());
        let left = (job.deadline.get() - now).max(self.quantum - ran);
        if left > Ns::ZERO {
            return Resched::After(left);
        }
        let due = self.due(cx, task, now);
        if queue.waiting.first_key(cx.tasks).is_none_or(|first| first <= due.0) {
            return Resched::Now;
        }
        job.deadline.set(due);
        queue.running.remove(cx.tasks, task);
        queue.running.insert(cx.tasks, task, due.0);
        Resched::After(due - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness};
    use alloc::string::ToString;
    use heddle_core::TaskAttrs;

    fn ms(n: u64) -> Ns {
        Ns::from_ms(n)
    }

    /// A harness on which tasks 0, 1, ... are due at these times in ms (0: no deadline), and the first
    /// ones run, one per CPU.
    fn harness(text: &str, cpus: u16, deadlines: &[u64]) -> PolicyHarness<Edf> {
        let mut harness = PolicyHarness::new(text, usize::from(cpus).max(1));
        for (task, &deadline) in (0..).zip(deadlines) {
            let deadline = Some(ms(deadline));
            harness.init(task, TaskAttrs { deadline, ..TaskAttrs::default() });
        }
        for cpu in 0..cpus {
            harness.enqueue(cpu, cpu.into(), Enqueue::New);
            assert_eq!(harness.dequeue(cpu), Some(cpu.into()));
        }
        harness
    }

    #[test]
    fn keeps_the_rules_of_every_policy() {
        testkit::check::<Edf>("edf");
        testkit::check::<Edf>("edf:relative=50us,others=1us,quantum=5us");
    }

    #[test]
    fn reads_its_parameters_and_others_wait_ten_times_as_long() {
        testkit::check_params::<Edf>();
        let edf: Edf = crate::build("edf:relative=3ms").unwrap();
        assert_eq!(edf.others.to_string(), "30ms");
    }

    #[test]
    fn the_earliest_deadline_goes_first_and_equal_ones_in_turn() {
        let mut harness = harness("edf", 0, &[30, 10, 20, 10]);
        (0..4).for_each(|task| harness.enqueue(0, task, Enqueue::New));
        assert_eq!(harness.drain(0), [1, 3, 2, 0]);
    }

    #[test]
    fn a_task_without_a_deadline_gets_that_of_its_class() {
        let mut harness = PolicyHarness::<Edf>::of_two_classes("edf:relative=2ms", 1);
        [1, 0].into_iter().for_each(|task| harness.enqueue(0, task, Enqueue::New));
        harness.set_now(ms(19));
        harness.enqueue(0, 2, Enqueue::New);
        assert_eq!(harness.drain(0), [0, 1, 2], "due at 2, 20 and 21 ms");
    }

    #[test]
    fn each_wakeup_is_a_new_beginning_and_a_preemption_is_none() {
        let mut harness = harness("edf", 1, &[0, 0]);
        harness.set_now(Ns::from_us(500));
        harness.enqueue(0, 1, Enqueue::Wakeup);
        harness.enqueue(0, 0, Enqueue::Preempted);
        assert_eq!(harness.drain(0), [0, 1], "due at 1 and at 1.5 ms");
    }

    #[test]
    fn the_latest_makes_way_for_an_earlier_one_only() {
        let mut harness = harness("edf", 3, &[20, 40, 30, 40, 35]);
        harness.enqueue(0, 3, Enqueue::New);
        assert_eq!(harness.preempt(0, 3), None);
        harness.enqueue(0, 4, Enqueue::New);
        assert_eq!(harness.preempt(0, 4), Some(1));
    }

    #[test]
    fn two_urgent_newcomers_ask_two_cpus() {
        let mut harness = harness("edf", 3, &[20, 40, 30, 10, 12, 25]);
        let mut asked = |task| {
            harness.enqueue(0, task, Enqueue::New);
            harness.preempt(0, task)
        };
        assert_eq!([asked(3), asked(4), asked(5)], [Some(1), Some(2), None]);
    }

    #[test]
    fn a_deadline_that_is_over_is_worth_nothing() {
        let mut harness = harness("edf", 1, &[1, 3]);
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(harness.tick(0, 0, Ns::ZERO), Resched::After(ms(1)));
        harness.set_now(ms(1));
        assert_eq!(harness.tick(0, 0, ms(1)), Resched::After(ms(1)), "the next is at 2 ms");
        harness.set_now(ms(2));
        assert_eq!(harness.tick(0, 0, ms(2)), Resched::Now, "at 3 ms, as the other's");
        harness.enqueue(0, 0, Enqueue::Preempted);
        assert_eq!(harness.drain(0), [1, 0]);
    }

    #[test]
    fn a_late_task_still_has_a_quantum() {
        let mut harness = harness("edf", 1, &[1, 1]);
        harness.enqueue(0, 1, Enqueue::New);
        harness.set_now(ms(5));
        assert_eq!(harness.tick(0, 0, Ns::from_us(40)), Resched::After(Ns::from_us(60)));
    }

    #[test]
    fn a_yielding_task_goes_behind_all_others_and_keeps_its_deadline() {
        let mut harness = harness("edf", 1, &[10, 20, 30]);
        harness.enqueue(0, 1, Enqueue::New);
        harness.enqueue(0, 0, Enqueue::Yield);
        harness.enqueue(0, 2, Enqueue::New);
        assert_eq!([harness.dequeue(0), harness.dequeue(0)], [Some(1), Some(0)]);
        harness.enqueue(0, 0, Enqueue::Preempted);
        assert_eq!(harness.drain(0), [0, 2]);
    }
}
