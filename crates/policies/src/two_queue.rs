//! `two-queue`: new and woken tasks run before preempted ones.
//!
//! - **Optimises** the tail of short tasks whose sizes are unknown, with few preemptions of the long
//!   ones: a task that finishes within the first quantum never waits behind a known-long one, and long
//!   tasks, once known, run for a longer quantum while no short one waits.
//! - **Parameters**: `quantum` (default 100us) for new and woken tasks; `long` (default 1ms, at least
//!   `quantum`) for preempted ones; `patience` (default 64): how many newer tasks may overtake a
//!   preempted one.
//! - **Complexity**: constant time to enqueue and dequeue; placing and stealing read a hint per CPU.
//! - **Source**: Aspen, section 3.2, "Head-of-line blocking" and "Implementation"; a simplified
//!   multi-level feedback queue. The bound on overtaking is ours: Aspen lets new work starve preempted
//!   work for as long as it arrives.
//!
//! # Which queue
//!
//! | event | queue | why |
//! |---|---|---|
//! | new, woken | new | nothing is known of it, or a new burst begins |
//! | preempted | preempted | it outlived a quantum |
//! | yield, migrated, commit failed | the one it was taken from | says nothing of its length (see below) |
//!
//! A long task that yields just before its quantum ends must not pass for a short one.

use crate::{options, per_cpu};
use heddle_core::{Balance, CpuId, Cx, Enqueue, Model, Ns, ParamError, Params};
use heddle_core::{Policy, Resched, TaskId, TaskList, Var};

/// Aspen's two queues; see `docs/policies/two-queue.md`.
#[derive(Clone, Debug)]
pub struct TwoQueue {
    quantum: Ns,
    long: Ns,
    patience: u32,
}

/// The run queues of one CPU.
#[derive(Debug, Default)]
pub struct Queues {
    new: TaskList,
    preempted: TaskList,
    /// How many tasks have been taken from `new` since the last one from `preempted`, while one waited
    /// there.
    overtaken: u32,
}

impl Queues {
    /// Returns the list in which `task` waits.
    #[inline]
    fn list_of(&mut self, cx: &Cx<'_, Outlived>, task: TaskId) -> &mut TaskList {
        match cx.task(task).policy.0.get() {
            0 => &mut self.new,
            _ => &mut self.preempted,
        }
    }
}

/// 1 if the task has outlived a quantum since it was created or last woke, else 0.
#[derive(Debug, Default)]
pub struct Outlived(Var);

impl TwoQueue {
    /// Returns how long the running `task` may run before another task has a turn.
    #[inline]
    fn limit(&self, cx: &Cx<'_, Outlived>, queue: &Queues, task: TaskId) -> Ns {
        match cx.task(task).policy.0.get() != 0 && queue.new.is_empty() {
            true => self.long,
            false => self.quantum,
        }
    }
}

impl Policy for TwoQueue {
    type Task = Outlived;
    type Queue = Queues;

    const NAME: &'static str = "two-queue";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = true;
    const EXTENDS: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        let quantum = params.ns("quantum", Ns::from_us(100))?;
        let long = options::long(params, quantum)?;
        Ok(TwoQueue { quantum, long, patience: params.count("patience", 64)? })
    }

    fn queue(&self) -> Queues {
        Queues::default()
    }

    #[inline]
    fn len(&self, queue: &Queues) -> usize {
        queue.new.len() + queue.preempted.len()
    }

    fn quantum(&self) -> Option<Ns> {
        Some(self.quantum)
    }

    #[inline]
    fn enqueue(&self, cx: &Cx<'_, Outlived>, queue: &mut Queues, task: TaskId, why: Enqueue) {
        let outlived = &cx.task(task).policy.0;
        match why {
            Enqueue::New | Enqueue::Wakeup => outlived.set(0),
            Enqueue::Preempted => outlived.set(1),
            Enqueue::Yield | Enqueue::Migrated | Enqueue::CommitFailed => {}
        }
        queue.list_of(cx, task).push_back(cx.tasks, task);
    }

    /// New before preempted; but the oldest preempted task is overtaken at most `patience` times.
    #[inline]
    fn dequeue(&self, cx: &Cx<'_, Outlived>, queue: &mut Queues) -> Option<TaskId> {
        let waits = !queue.preempted.is_empty();
        if waits && (queue.new.is_empty() || queue.overtaken >= self.patience) {
            queue.overtaken = 0;
            return queue.preempted.pop_front(cx.tasks);
        }
        queue.overtaken += u32::from(waits);
        queue.new.pop_front(cx.tasks)
    }

    fn remove(&self, cx: &Cx<'_, Outlived>, queue: &mut Queues, task: TaskId) -> bool {
        queue.list_of(cx, task).remove(cx.tasks, task);
        true
    }

    #[inline]
    fn place(&self, cx: &Cx<'_, Outlived>, _: TaskId, home: CpuId) -> CpuId {
        cx.nearest_idle(home).unwrap_or(home)
    }

    /// A new task that arrives while a preempted one runs its long quantum does not wait for `long`.
    #[inline]
    fn tick(&self, cx: &Cx<'_, Outlived>, queue: &mut Queues, task: TaskId, ran: Ns) -> Resched {
        per_cpu::until(self.limit(cx, queue, task), self.quantum, ran)
    }

    fn balance(&self, cx: &Cx<'_, Outlived>, attempt: usize) -> Balance {
        per_cpu::victim(cx, attempt)
    }

    /// New tasks first: their CPU is busy with something long.
    fn steal(&self, cx: &Cx<'_, Outlived>, _: CpuId, victim: &mut Queues) -> Option<TaskId> {
        victim.new.pop_front(cx.tasks).or_else(|| {
            victim.overtaken = 0;
            victim.preempted.pop_front(cx.tasks)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness};
    use alloc::string::ToString;

    fn harness() -> PolicyHarness<TwoQueue> {
        PolicyHarness::new("two-queue:quantum=10us,long=35us,patience=2", 1)
    }

    fn us(n: u64) -> Ns {
        Ns::from_us(n)
    }

    #[test]
    fn a_task_is_removed_from_where_it_waits() {
        let mut harness = harness();
        for (task, why) in
            [(0, Enqueue::Preempted), (1, Enqueue::Preempted), (2, Enqueue::New), (3, Enqueue::New)]
        {
            harness.enqueue(0, task, why);
        }
        assert!(harness.remove(0, 1) && harness.remove(0, 2));
        assert_eq!(harness.drain(0), [3, 0]);
    }

    #[test]
    fn keeps_the_rules_of_every_policy() {
        testkit::check::<TwoQueue>("two-queue:quantum=5us,long=20us");
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<TwoQueue>();
    }

    #[test]
    fn the_long_quantum_is_not_the_shorter_one() {
        let make = |text| crate::build::<TwoQueue>(text);
        let error = make("two-queue:quantum=1ms,long=10us").unwrap_err();
        assert!(error.to_string().contains("`10us` is not at least as long as `quantum`"));
        assert_eq!(make("two-queue:quantum=5ms").unwrap().long, Ns::from_ms(5));
    }

    #[test]
    fn new_and_woken_run_before_preempted() {
        let mut harness = harness();
        harness.enqueue(0, 0, Enqueue::Preempted);
        harness.enqueue(0, 1, Enqueue::New);
        harness.enqueue(0, 2, Enqueue::Wakeup);
        assert_eq!(harness.drain(0), [1, 2, 0]);
    }

    #[test]
    fn a_yield_or_a_failed_commit_does_not_make_a_long_task_new_but_a_wakeup_does() {
        for (why, order) in [
            (Enqueue::Yield, [1, 0]),
            (Enqueue::Migrated, [1, 0]),
            (Enqueue::CommitFailed, [1, 0]),
            (Enqueue::Wakeup, [0, 1]),
        ] {
            let mut harness = harness();
            harness.enqueue(0, 0, Enqueue::Preempted);
            harness.drain(0);
            harness.enqueue(0, 0, why);
            harness.enqueue(0, 1, Enqueue::New);
            assert_eq!(harness.drain(0), order, "{why:?}");
        }
    }

    #[test]
    fn a_preempted_task_is_overtaken_no_more_than_patience_allows() {
        let mut harness = harness();
        harness.enqueue(0, 9, Enqueue::Preempted);
        (0..4).for_each(|task| harness.enqueue(0, task, Enqueue::New));
        assert_eq!(harness.drain(0), [0, 1, 9, 2, 3]);
    }

    #[test]
    fn a_preempted_task_runs_long_only_while_nothing_new_waits() {
        let mut harness = harness();
        harness.enqueue(0, 0, Enqueue::Preempted);
        assert_eq!(harness.dequeue(0), Some(0));
        assert_eq!(harness.tick(0, 0, us(3)), Resched::After(us(7)));
        assert_eq!(harness.tick(0, 0, us(10)), Resched::Until(us(25)));
        assert_eq!(harness.tick(0, 0, us(30)), Resched::Until(us(5)));
        assert_eq!(harness.tick(0, 0, us(35)), Resched::Now);
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(harness.tick(0, 0, us(9)), Resched::After(us(1)));
        assert_eq!(harness.tick(0, 0, us(10)), Resched::Now);
    }

    #[test]
    fn patience_begins_anew_when_the_preempted_task_is_stolen() {
        let mut harness = PolicyHarness::<TwoQueue>::new("two-queue:patience=1", 2);
        harness.enqueue(0, 9, Enqueue::Preempted);
        harness.enqueue(0, 0, Enqueue::New);
        assert_eq!((harness.dequeue(0), harness.steal(1, 0)), (Some(0), Some(9)));
        harness.enqueue(0, 8, Enqueue::Preempted);
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(harness.drain(0), [1, 8]);
    }

    #[test]
    fn a_thief_takes_new_before_preempted() {
        let mut harness = PolicyHarness::<TwoQueue>::new("two-queue", 2);
        harness.enqueue(0, 0, Enqueue::Preempted);
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!((harness.steal(1, 0), harness.steal(1, 0)), (Some(1), Some(0)));
    }
}
