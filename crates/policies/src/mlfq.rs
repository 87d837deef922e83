//! `mlfq`: several levels, each with a longer quantum; a task that uses up the time of a level sinks to
//! the next.
//!
//! - **Optimises** the tail of short tasks whose sizes are unknown and of several scales: a task waits
//!   only for those that have used as little time as it has. The longer a task turns out to be, the
//!   less often it is interrupted.
//! - **Parameters**: `quantum` (default 100us) of the highest level; `levels` (default 3, at most 8);
//!   `factor` (default 2): how much longer each level's quantum is than that above; `boost` (default
//!   100ms): how often all tasks rise to the highest level.
//! - **Complexity**: constant time for every operation, in the number of tasks; a step per level to
//!   dequeue. Reads the clock at each dequeue and when a task yields, blocks or is preempted.
//! - **Source**: Corbato, Merwin-Daggett, Daley, An experimental time-sharing system, AFIPS 1962; the
//!   rules, with time that adds up over yields and a boost against starvation, are those of
//!   Arpaci-Dusseau, Operating Systems: Three Easy Pieces, chapter 8.
//!
//! # Eras
//!
//! A boost would have to touch every task. Instead, time is divided into eras of length `boost`. A
//! task's level counts only in the era in which it was set; in any other era the task is on the highest
//! level. A queue that enters an era merges its levels into one.

use crate::options::{self, FEW};
use crate::per_cpu;
use heddle_core::{Balance, CpuId, Cx, Enqueue, Model, Ns, ParamError, Params};
use heddle_core::{Policy, Resched, TaskId, TaskList, Var};

/// Multi-level feedback; see `docs/policies/mlfq.md`.
#[derive(Clone, Debug)]
pub struct Mlfq {
    quantum: Ns,
    levels: usize,
    factor: u64,
    boost: Ns,
}

/// The run queues of one CPU, the highest level first.
#[derive(Debug, Default)]
pub struct Levels {
    lists: [TaskList; FEW],
    era: u64,
}

/// The task's level and how much of its time it has used.
#[derive(Debug, Default)]
pub struct Usage {
    level: Var,
    /// The era to which `level` and `used` belong.
    era: Var,
    used: Var<Ns>,
    dequeued: Var<Ns>,
}

impl Usage {
    fn level(&self) -> usize {
        self.level.get() as usize
    }

    fn rise(&self, era: u64) {
        self.level.set(0);
        self.used.set(Ns::ZERO);
        self.era.set(era);
    }

    fn enter(&self, era: u64) {
        if self.era.get() != era {
            self.rise(era);
        }
    }
}

impl Levels {
    fn enter(&mut self, cx: &Cx<'_, Usage>, era: u64) {
        if self.era != era {
            self.era = era;
            let (highest, others) = self.lists.split_at_mut(1);
            others.iter_mut().for_each(|list| highest[0].append(cx.tasks, list));
        }
    }
}

impl Mlfq {
    fn quantum_of(&self, level: usize) -> Ns {
        self.quantum * self.factor.saturating_pow(level as u32)
    }

    /// Adds the turn that ends now. However a task splits its time, it sinks once it has used up that
    /// of its level.
    fn charge(&self, cx: &Cx<'_, Usage>, era: u64, task: TaskId) {
        let usage = &cx.task(task).policy;
        usage.enter(era);
        usage.used.set(usage.used.get() + (cx.now() - usage.dequeued.get()));
        if usage.used.get() >= self.quantum_of(usage.level()) {
            usage.level.set((usage.level.get() + 1).min(self.levels as u64 - 1));
            usage.used.set(Ns::ZERO);
        }
    }

    /// Takes the oldest task of the highest level and starts its turn.
    #[inline]
    fn take(&self, cx: &Cx<'_, Usage>, queue: &mut Levels) -> Option<TaskId> {
        let now = cx.now();
        queue.enter(cx, now.0 / self.boost.0);
        let task = queue.lists.iter_mut().find_map(|list| list.pop_front(cx.tasks))?;
        let usage = &cx.task(task).policy;
        usage.enter(queue.era);
        usage.dequeued.set(now);
        Some(task)
    }
}

impl Policy for Mlfq {
    type Task = Usage;
    type Queue = Levels;

    const NAME: &'static str = "mlfq";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = true;
    const EXTENDS: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Mlfq {
            quantum: params.ns("quantum", Ns::from_us(100))?,
            levels: options::few(params, "levels", 3)?,
            factor: params.count("factor", 2)?.into(),
            boost: params.ns("boost", Ns::from_ms(100))?,
        })
    }

    fn queue(&self) -> Levels {
        Levels::default()
    }

    #[inline]
    fn len(&self, queue: &Levels) -> usize {
        queue.lists.iter().map(TaskList::len).sum()
    }

    fn quantum(&self) -> Option<Ns> {
        Some(self.quantum)
    }

    /// A new task starts on the highest level; one that slept, migrated or failed to commit stays on
    /// its level.
    #[inline]
    fn enqueue(&self, cx: &Cx<'_, Usage>, queue: &mut Levels, task: TaskId, why: Enqueue) {
        let usage = &cx.task(task).policy;
        match why {
            Enqueue::New => usage.rise(queue.era),
            Enqueue::Yield | Enqueue::Preempted => self.charge(cx, queue.era, task),
            Enqueue::Wakeup | Enqueue::Migrated | Enqueue::CommitFailed => usage.enter(queue.era),
        }
        queue.lists[usage.level()].push_back(cx.tasks, task);
    }

    #[inline]
    fn dequeue(&self, cx: &Cx<'_, Usage>, queue: &mut Levels) -> Option<TaskId> {
        self.take(cx, queue)
    }

    fn block(&self, cx: &Cx<'_, Usage>, queue: &mut Levels, task: TaskId) {
        self.charge(cx, queue.era, task);
    }

    #[inline]
    fn place(&self, cx: &Cx<'_, Usage>, _: TaskId, home: CpuId) -> CpuId {
        cx.nearest_idle(home).unwrap_or(home)
    }

    /// The quantum of its level, or the shortest if a task of a higher level waits.
    #[inline]
    fn tick(&self, cx: &Cx<'_, Usage>, queue: &mut Levels, task: TaskId, ran: Ns) -> Resched {
        let level = cx.task(task).policy.level();
        let above = queue.lists[..level].iter().any(|list| !list.is_empty());
        let limit = if above { self.quantum } else { self.quantum_of(level) };
        per_cpu::until(limit, self.quantum, ran)
    }

    fn balance(&self, cx: &Cx<'_, Usage>, attempt: usize) -> Balance {
        per_cpu::victim(cx, attempt)
    }

    fn steal(&self, cx: &Cx<'_, Usage>, _: CpuId, victim: &mut Levels) -> Option<TaskId> {
        self.take(cx, victim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness};

    fn us(n: u64) -> Ns {
        Ns::from_us(n)
    }

    /// One CPU; levels of 10, 20 and 40 us.
    fn harness() -> PolicyHarness<Mlfq> {
        PolicyHarness::new("mlfq:quantum=10us,boost=10ms", 1)
    }

    /// `task` runs alone from `from` until `to` and returns because of `why`.
    fn run(harness: &mut PolicyHarness<Mlfq>, task: u32, from: u64, to: u64, why: Enqueue) {
        harness.set_now(us(from));
        assert_eq!(harness.dequeue(0), Some(task));
        harness.set_now(us(to));
        if why == Enqueue::Wakeup {
            harness.block(0, task);
        }
        harness.enqueue(0, task, why);
    }

    /// Returns the quantum of `task`, dequeued alone.
    fn quantum(harness: &mut PolicyHarness<Mlfq>, task: u32) -> u64 {
        assert_eq!(harness.dequeue(0), Some(task));
        (1..).find(|&n| harness.tick(0, task, us(n)) == Resched::Now).unwrap()
    }

    #[test]
    fn keeps_the_rules_of_every_policy() {
        testkit::check::<Mlfq>("mlfq:quantum=5us,boost=300us");
        testkit::check::<Mlfq>("mlfq:quantum=5us,levels=8,factor=3,boost=100us");
        testkit::check::<Mlfq>("mlfq:levels=1,quantum=5us");
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<Mlfq>();
        assert!(crate::build::<Mlfq>("mlfq:levels=9").is_err());
    }

    #[test]
    fn a_task_sinks_level_by_level_to_the_lowest() {
        let mut harness = harness();
        harness.enqueue(0, 0, Enqueue::New);
        let mut quanta = [0; 4];
        for (i, quantum) in quanta.iter_mut().enumerate() {
            let now = 100 * i as u64;
            harness.set_now(us(now));
            *quantum = self::quantum(&mut harness, 0);
            harness.set_now(us(now + *quantum));
            harness.enqueue(0, 0, Enqueue::Preempted);
        }
        assert_eq!(quanta, [10, 20, 40, 40]);
    }

    #[test]
    fn higher_levels_run_first() {
        let mut harness = harness();
        harness.enqueue(0, 0, Enqueue::New);
        run(&mut harness, 0, 0, 10, Enqueue::Preempted);
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(harness.drain(0), [1, 0]);
    }

    #[test]
    fn short_turns_add_up_however_they_end() {
        for why in [Enqueue::Yield, Enqueue::Wakeup, Enqueue::Preempted] {
            let mut harness = harness();
            harness.enqueue(0, 0, Enqueue::New);
            run(&mut harness, 0, 0, 9, why);
            assert_eq!(quantum(&mut harness, 0), 10, "{why:?}");
            harness.enqueue(0, 0, Enqueue::CommitFailed);
            run(&mut harness, 0, 20, 21, why);
            assert_eq!(quantum(&mut harness, 0), 20, "{why:?}");
        }
    }

    #[test]
    fn a_long_quantum_ends_early_for_a_higher_level() {
        let mut harness = harness();
        harness.enqueue(0, 0, Enqueue::New);
        run(&mut harness, 0, 0, 10, Enqueue::Preempted);
        harness.dequeue(0);
        assert_eq!(harness.tick(0, 0, us(10)), Resched::Until(us(10)));
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(harness.tick(0, 0, us(10)), Resched::Now);
    }

    #[test]
    fn all_rise_in_a_new_era_in_the_order_of_their_levels() {
        let mut harness = harness();
        harness.enqueue(0, 0, Enqueue::New);
        run(&mut harness, 0, 0, 10, Enqueue::Preempted);
        run(&mut harness, 0, 20, 40, Enqueue::Preempted);
        harness.enqueue(0, 1, Enqueue::New);
        run(&mut harness, 1, 50, 60, Enqueue::Preempted);
        harness.enqueue(0, 2, Enqueue::New);
        harness.set_now(Ns::from_ms(10));
        let first = harness.dequeue(0);
        harness.enqueue(0, 3, Enqueue::New);
        assert_eq!((first, harness.drain(0)), (Some(2), [1, 0, 3].into()));
        harness.enqueue(0, 0, Enqueue::Wakeup);
        assert_eq!(quantum(&mut harness, 0), 10);
    }

    #[test]
    fn a_thief_takes_from_the_highest_level() {
        let mut harness = PolicyHarness::<Mlfq>::new("mlfq:quantum=10us", 2);
        harness.enqueue(0, 0, Enqueue::New);
        run(&mut harness, 0, 0, 10, Enqueue::Preempted);
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(
            (harness.steal(1, 0), harness.steal(1, 0), harness.steal(1, 0)),
            (Some(1), Some(0), None)
        );
    }
}
