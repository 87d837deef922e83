//! `priority`: strict levels by class; a newcomer preempts the least urgent running task at once.
//!
//! - **Optimises** the delay of urgent tasks, whatever it costs the rest: workers that poll (class LC,
//!   level 0) over antagonists (BE, level 1), or any number of levels down to class 255.
//! - **Parameters**: `quantum` (default 1ms, or `none`), the turn of a task among those of its level;
//!   `check` (default 100us, at most `quantum`), how often a running task is checked for a more urgent
//!   one waiting.
//! - **Complexity**: O(log n) expected for every operation, with n running tasks; one queue, which all
//!   CPUs share.
//! - **Source**: ghOSt, section 4.3: Snap's polling threads take precedence over all others on the
//!   machine.
//!
//! # Classes that change
//! A thread's current work may change while it waits or runs (Syrup, section 5.3). Its level is the one
//! it had when it began to wait or, while it runs, at its last tick.

use crate::per_cpu::after_looking;
use heddle_core::{
    BestEffort, CpuId, Cx, Enqueue, FairTerms, Model, Ns, ParamError, Params, Policy,
};
use heddle_core::{Resched, TaskId, TaskList, TaskTree, TreeNode, TreeTask, Var};

const LEVELS: usize = 256;

/// Strict priorities; see `docs/policies/priority.md`.
#[derive(Clone, Debug)]
pub struct Priority {
    quantum: Option<Ns>,
    check: Ns,
}

/// Per-task state.
#[derive(Debug, Default)]
pub struct TaskState {
    node: TreeNode,
    /// The number of the CPU that runs it, plus one; zero if it does not run.
    on: Var,
    /// The level at which it waits, or last waited.
    level: Var,
}

impl TreeTask for TaskState {
    fn node(&self) -> &TreeNode {
        &self.node
    }
}

/// The tasks of all CPUs.
#[derive(Debug)]
pub struct Levels {
    waiting: [TaskList; LEVELS],
    /// A bit for each level that has waiting tasks.
    some: [u64; LEVELS / 64],
    len: usize,
    /// The running tasks, by level.
    running: TaskTree,
}

impl Levels {
    /// Returns the levels that have waiting tasks, most urgent first.
    fn levels(&self) -> impl Iterator<Item = usize> {
        let words = self.some.iter().enumerate();
        words.flat_map(|(at, &word)| {
            // Each without the lowest bit of the one before, until none is left.
            let rest = core::iter::successors(Some(word), |word| Some(word & word.checked_sub(1)?));
            let some = rest.take_while(|&word| word != 0);
            some.map(move |word| at * 64 + word.trailing_zeros() as usize)
        })
    }

    /// Returns the most urgent level that has waiting tasks.
    #[inline]
    fn first(&self) -> Option<usize> {
        let word = self.some.iter().position(|&word| word != 0)?;
        Some(word * 64 + self.some[word].trailing_zeros() as usize)
    }

    fn pop(&mut self, cx: &Cx<'_, TaskState>) -> Option<TaskId> {
        let task = self.waiting[self.first()?].front()?;
        self.start(cx, task);
        Some(task)
    }

    /// Takes `task`, which waits, for `cx.cpu`.
    #[inline]
    fn start(&mut self, cx: &Cx<'_, TaskState>, task: TaskId) {
        let level = cx.task(task).policy.level.get() as usize;
        self.waiting[level].remove(cx.tasks, task);
        if self.waiting[level].is_empty() {
            self.some[level / 64] &= !(1 << (level % 64));
        }
        self.len -= 1;
        cx.task(task).policy.on.set(u64::from(cx.cpu.0) + 1);
        self.running.insert(cx.tasks, task, level as u64);
    }

    /// Records that `task` stopped running, if it ran.
    fn stop(&mut self, cx: &Cx<'_, TaskState>, task: TaskId) {
        if cx.task(task).policy.on.get() != 0 {
            cx.task(task).policy.on.set(0);
            self.running.remove(cx.tasks, task);
        }
    }

    /// Moves `task`, which runs, to another level.
    fn count_as(&mut self, cx: &Cx<'_, TaskState>, task: TaskId, level: usize) {
        self.running.remove(cx.tasks, task);
        self.running.insert(cx.tasks, task, level as u64);
    }
}

fn level<T>(cx: &Cx<'_, T>, task: TaskId) -> usize {
    usize::from(cx.task(task).attrs().class.0)
}

impl Policy for Priority {
    type Task = TaskState;
    type Queue = Levels;

    const NAME: &'static str = "priority";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = true;
    const PREEMPTS: bool = true;
    const PUBLISHES: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        let quantum = params.ns_or_none("quantum", Some(Ns::from_ms(1)))?;
        let most = quantum.unwrap_or(Ns::MAX);
        let check = params.ns("check", most.min(Ns::from_us(100)))?;
        match params.text("check") {
            Some(given) if check > most => {
                let allowed = "at most as long as `quantum`";
                Err(ParamError::Value { key: "check", given, allowed })
            }
            _ => Ok(Priority { quantum, check }),
        }
    }

    fn queue(&self) -> Levels {
        let waiting = core::array::from_fn(|_| TaskList::default());
        Levels { waiting, some: [0; LEVELS / 64], len: 0, running: TaskTree::default() }
    }

    #[inline]
    fn len(&self, queue: &Levels) -> usize {
        queue.len
    }

    fn quantum(&self) -> Option<Ns> {
        Some(self.check)
    }

    fn fair_terms(&self) -> Option<FairTerms> {
        let slice = self.quantum.unwrap_or(Ns::MAX);
        Some(FairTerms::new(BestEffort::Below, slice))
    }

    fn task_init(&self, cx: &Cx<'_, TaskState>, task: TaskId) {
        cx.task(task).policy.on.set(0);
    }

    fn task_exit(&self, cx: &Cx<'_, TaskState>, queue: &mut Levels, task: TaskId) {
        queue.stop(cx, task);
    }

    #[inline]
    fn enqueue(&self, cx: &Cx<'_, TaskState>, queue: &mut Levels, task: TaskId, _: Enqueue) {
        queue.stop(cx, task);
        let level = level(cx, task);
        cx.task(task).policy.level.set(level as u64);
        queue.waiting[level].push_back(cx.tasks, task);
        queue.some[level / 64] |= 1 << (level % 64);
        queue.len += 1;
    }

    #[inline]
    fn dequeue(&self, cx: &Cx<'_, TaskState>, queue: &mut Levels) -> Option<TaskId> {
        queue.pop(cx)
    }

    fn remove(&self, cx: &Cx<'_, TaskState>, queue: &mut Levels, task: TaskId) -> bool {
        queue.start(cx, task);
        true
    }

    fn upcoming(
        &self,
        cx: &Cx<'_, TaskState>,
        queue: &Levels,
        each: &mut dyn FnMut(TaskId) -> bool,
    ) {
        queue.levels().flat_map(|level| queue.waiting[level].iter(cx.tasks)).all(each);
    }

    fn hint(&self, cx: &Cx<'_, TaskState>, task: TaskId) -> u64 {
        cx.task(task).policy.level.get()
    }

    fn block(&self, cx: &Cx<'_, TaskState>, queue: &mut Levels, task: TaskId) {
        queue.stop(cx, task);
    }

    /// Preempts the most recently started of the least urgent running tasks if it is less urgent than
    /// the newcomer. Its CPU counts as running the newcomer from then on: the next newcomer picks
    /// another CPU even if this one has not been notified yet.
    fn preempt(&self, cx: &Cx<'_, TaskState>, queue: &mut Levels, task: TaskId) -> Option<CpuId> {
        let (level, last) = (level(cx, task), queue.running.last(cx.tasks)?);
        let place = &cx.task(last).policy;
        (place.node.key() > level as u64).then(|| {
            queue.count_as(cx, last, level);
            CpuId((place.on.get() - 1) as u16)
        })
    }

    /// Yields to a more urgent task at each check, to one of its level after its turn.
    #[inline]
    fn tick(&self, cx: &Cx<'_, TaskState>, queue: &mut Levels, task: TaskId, ran: Ns) -> Resched {
        let level = level(cx, task);
        if cx.task(task).policy.node.key() != level as u64 {
            queue.count_as(cx, task, level);
        }
        let waits = queue.first().unwrap_or(LEVELS);
        match self.quantum {
            _ if waits < level && ran >= self.check => Resched::Now,
            Some(quantum) if waits <= level || ran < quantum => {
                after_looking(quantum, self.check, ran)
            }
            _ => Resched::After(self.check),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness, Promises};
    use alloc::string::ToString;
    use heddle_core::{Class, TaskAttrs};

    fn us(n: u64) -> Ns {
        Ns::from_us(n)
    }

    fn set(harness: &mut PolicyHarness<Priority>, task: u32, class: u8) {
        harness.init(task, TaskAttrs { class: Class(class), ..TaskAttrs::default() });
    }

    /// A harness on which tasks 0, 1, ... have these classes and the first ones run, one per CPU.
    fn harness(text: &str, cpus: u16, classes: &[u8]) -> PolicyHarness<Priority> {
        let mut harness = PolicyHarness::new(text, usize::from(cpus).max(1));
        (0..).zip(classes).for_each(|(task, &class)| set(&mut harness, task, class));
        for cpu in 0..cpus {
            harness.enqueue(cpu, cpu.into(), Enqueue::New);
            assert_eq!(harness.dequeue(cpu), Some(cpu.into()));
        }
        harness
    }

    const UNFAIR: Promises = Promises { fair: false };

    #[test]
    fn keeps_the_rules_of_every_policy_but_fairness() {
        for text in ["priority", "priority:quantum=none", "priority:quantum=7us,check=2us"] {
            testkit::check_with::<Priority>(|| crate::build(text).unwrap(), UNFAIR);
        }
    }

    #[test]
    fn the_less_urgent_starve_and_it_says_so() {
        let make = || crate::build::<Priority>("priority").unwrap();
        let violation = testkit::violation(make, Promises::default());
        assert!(matches!(violation, Some(testkit::Violation::Starved(_))), "{violation:?}");
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<Priority>();
        let error = crate::build::<Priority>("priority:quantum=50us,check=60us").unwrap_err();
        assert!(error.to_string().contains("at most as long as `quantum`"), "{error}");
        assert!(crate::build::<Priority>("priority:quantum=50us").is_ok());
    }

    #[test]
    fn levels_are_strict_and_tasks_of_one_go_in_turn() {
        let mut harness = harness("priority", 0, &[1, 255, 0, 1, 0, 64]);
        (0..6).for_each(|task| harness.enqueue(0, task, Enqueue::New));
        assert_eq!(harness.drain(0), [2, 4, 0, 3, 5, 1]);
    }

    #[test]
    fn the_least_urgent_makes_way_at_once_for_a_more_urgent_one_only() {
        let mut harness = harness("priority", 3, &[0, 2, 1, 2, 1]);
        harness.enqueue(0, 3, Enqueue::Wakeup);
        assert_eq!(harness.preempt(0, 3), None);
        harness.enqueue(0, 4, Enqueue::Wakeup);
        assert_eq!(harness.preempt(0, 4), Some(1));
    }

    #[test]
    fn urgent_newcomers_ask_a_cpu_each_and_none_that_runs_their_like() {
        let mut harness = harness("priority", 3, &[1, 0, 1, 0, 0, 0]);
        let mut asked = |task| {
            harness.enqueue(0, task, Enqueue::New);
            harness.preempt(0, task)
        };
        assert_eq!([asked(3), asked(4), asked(5)], [Some(2), Some(0), None]);
    }

    #[test]
    fn a_task_has_its_turn_among_its_like_and_is_not_disturbed_by_the_less_urgent() {
        let mut harness = harness("priority", 1, &[0, 1, 0]);
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(harness.tick(0, 0, us(5000)), Resched::After(us(100)));
        harness.enqueue(0, 2, Enqueue::New);
        assert_eq!(harness.tick(0, 0, us(950)), Resched::After(us(50)));
        assert_eq!(harness.tick(0, 0, us(1000)), Resched::Now);
    }

    #[test]
    fn without_a_quantum_only_the_more_urgent_disturb() {
        let mut harness = harness("priority:quantum=none", 1, &[1, 1, 0]);
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(harness.tick(0, 0, us(5000)), Resched::After(us(100)));
        harness.enqueue(0, 2, Enqueue::New);
        assert_eq!(harness.tick(0, 0, us(99)), Resched::After(us(100)), "not checked yet");
        assert_eq!(harness.tick(0, 0, us(100)), Resched::Now);
    }

    #[test]
    fn a_task_whose_class_falls_while_it_runs_makes_way() {
        let mut harness = harness("priority", 1, &[0, 0]);
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(harness.tick(0, 0, us(100)), Resched::After(us(100)));
        harness.set_class(0, 2);
        assert_eq!(harness.tick(0, 0, us(200)), Resched::Now);
        harness.enqueue(0, 0, Enqueue::Preempted);
        assert_eq!(harness.drain(0), [1, 0]);
    }

    #[test]
    fn a_newcomer_finds_out_that_a_class_has_fallen() {
        let mut harness = harness("priority", 2, &[0, 0, 0]);
        harness.set_class(0, 2);
        harness.tick(0, 0, us(100));
        harness.enqueue(0, 2, Enqueue::New);
        assert_eq!(harness.preempt(1, 2), Some(0));
    }
}
