//! `cfs`: the completely fair scheduler; the task that has run least goes first.
//!
//! - **Optimises** fairness: each task gets a share of its CPU by its weight, in slices that shrink as
//!   more tasks wait. A waking task is forgiven part of its service, so tasks that sleep a lot have
//!   short waits.
//! - **Parameters**: `latency` (default 50us), the time in which every waiting task should have a turn;
//!   `granularity` (default 12.5us, at most `latency`), the shortest slice; `weight` (default 15, at
//!   most 1024), that of classes other than LC, which has 1024.
//! - **Complexity**: O(log n) expected to enqueue and dequeue with n tasks in the queue; placing and
//!   stealing read a hint per CPU.
//! - **Source**: Skyloft, section 5.1 and Tables 4 and 5 (the parameters of Skyloft CFS); the
//!   documentation of Linux, `scheduler/sched-design-CFS`, before 6.6.

use crate::fair::{self, Entity, Weights};
use crate::per_cpu;
use heddle_core::{Balance, CpuId, Cx, Enqueue, FairTerms, Model, Ns, ParamError, Params};
use heddle_core::{Policy, Resched, TaskId, TaskTree};

/// The completely fair scheduler; see `docs/policies/cfs.md`.
#[derive(Clone, Debug)]
pub struct Cfs {
    latency: Ns,
    granularity: Ns,
    weights: Weights,
}

/// The run queue of one CPU.
#[derive(Debug, Default)]
pub struct Queue {
    /// The waiting tasks, by virtual time.
    tree: TaskTree,
    /// The sum of their weights.
    load: u64,
    /// The queue's virtual time: it follows the least virtual time of its waiting and running tasks and
    /// never goes back.
    time: u64,
    /// The running task. After a steal, unknown until the first tick: the thief's queue is not
    /// notified.
    running: Option<TaskId>,
}

impl Queue {
    fn follow(&mut self, cx: &Cx<'_, Entity>, running: u64) {
        let first = self.tree.first_key(cx.tasks).filter(|&first| fair::ahead(running, first) > 0);
        self.time = fair::later(self.time, first.unwrap_or(running));
    }
}

impl Cfs {
    /// Returns the slice of a task of `weight` while tasks of total weight `others` share its CPU.
    fn slice(&self, weight: u64, others: u64) -> Ns {
        (self.latency * weight / (weight + others)).max(self.granularity)
    }

    /// Charges `task`, which runs or ran on this queue's CPU.
    fn charge(&self, cx: &Cx<'_, Entity>, queue: &mut Queue, task: TaskId) {
        let entity = &cx.task(task).policy;
        entity.charge(cx.now(), self.weights.of(cx, task));
        entity.join(cx.cpu, queue.time);
        queue.follow(cx, entity.vtime.get());
    }

    fn charge_running(&self, cx: &Cx<'_, Entity>, queue: &mut Queue) {
        if let Some(running) = queue.running {
            self.charge(cx, queue, running);
        }
    }

    /// Returns where a new task starts: a slice behind, so that creating many tasks gains nothing.
    fn put_new(&self, cx: &Cx<'_, Entity>, queue: &Queue, task: TaskId) {
        let weight = self.weights.of(cx, task);
        let running = queue.running.map_or(0, |running| self.weights.of(cx, running));
        let debt = fair::virtual_time_of(self.slice(weight, queue.load + running), weight);
        cx.task(task).policy.put(cx.cpu, queue.time.wrapping_add(debt));
    }

    /// A waking task starts where it left off, or half a latency before all others if that is later:
    /// apart from that credit, time it did not use while asleep is lost.
    fn put_woken(&self, cx: &Cx<'_, Entity>, queue: &Queue, entity: &Entity) {
        entity.join(cx.cpu, queue.time);
        let earliest = queue.time.wrapping_sub((self.latency / 2).0);
        entity.vtime.set(fair::later(entity.vtime.get(), earliest));
    }

    /// Takes the first task out of `queue` to run it.
    fn take(&self, cx: &Cx<'_, Entity>, queue: &mut Queue) -> Option<TaskId> {
        let task = queue.tree.pop_first(cx.tasks)?;
        queue.load -= self.weights.of(cx, task);
        cx.task(task).policy.leave(queue.time, Some(cx.now()));
        Some(task)
    }
}

impl Policy for Cfs {
    type Task = Entity;
    type Queue = Queue;

    const NAME: &'static str = "cfs";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = true;
    const PREEMPTS: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        let latency = params.ns("latency", Ns::from_us(50))?;
        let granularity = params.ns("granularity", latency.min(Ns(12_500)))?;
        let weights = Weights::read(params)?;
        match params.text("granularity") {
            Some(given) if granularity > latency => {
                let allowed = "at most as long as `latency`";
                Err(ParamError::Value { key: "granularity", given, allowed })
            }
            _ => Ok(Cfs { latency, granularity, weights }),
        }
    }

    fn queue(&self) -> Queue {
        Queue::default()
    }

    #[inline]
    fn len(&self, queue: &Queue) -> usize {
        queue.tree.len()
    }

    fn quantum(&self) -> Option<Ns> {
        Some(self.granularity)
    }

    fn fair_terms(&self) -> Option<FairTerms> {
        Some(FairTerms::new(self.weights.best_effort(), self.granularity))
    }

    fn task_init(&self, cx: &Cx<'_, Entity>, task: TaskId) {
        cx.task(task).policy.reset();
    }

    fn task_exit(&self, _: &Cx<'_, Entity>, queue: &mut Queue, task: TaskId) {
        queue.running.take_if(|running| *running == task);
    }

    /// A task that yields, or whose commit failed, lets at least the next task pass.
    fn enqueue(&self, cx: &Cx<'_, Entity>, queue: &mut Queue, task: TaskId, why: Enqueue) {
        let entity = &cx.task(task).policy;
        queue.running.take_if(|running| *running == task);
        match why {
            Enqueue::New | Enqueue::Wakeup => self.charge_running(cx, queue),
            Enqueue::Yield | Enqueue::Preempted => self.charge(cx, queue, task),
            Enqueue::Migrated | Enqueue::CommitFailed => {}
        }
        match why {
            Enqueue::New => self.put_new(cx, queue, task),
            Enqueue::Wakeup => self.put_woken(cx, queue, entity),
            _ => _ = entity.join(cx.cpu, queue.time),
        }
        if matches!(why, Enqueue::Yield | Enqueue::CommitFailed)
            && let Some(first) = queue.tree.first_key(cx.tasks)
        {
            entity.vtime.set(fair::later(entity.vtime.get(), first));
        }
        queue.tree.insert(cx.tasks, task, entity.vtime.get());
        queue.load += self.weights.of(cx, task);
    }

    fn dequeue(&self, cx: &Cx<'_, Entity>, queue: &mut Queue) -> Option<TaskId> {
        queue.running = self.take(cx, queue);
        if let Some(task) = queue.running {
            queue.follow(cx, cx.task(task).policy.vtime.get());
        }
        queue.running
    }

    fn block(&self, cx: &Cx<'_, Entity>, queue: &mut Queue, task: TaskId) {
        self.charge(cx, queue, task);
        queue.running.take_if(|running| *running == task);
        cx.task(task).policy.leave(queue.time, None);
    }

    /// The nearest idle CPU, else home, where the task's data is.
    #[inline]
    fn place(&self, cx: &Cx<'_, Entity>, _: TaskId, home: CpuId) -> CpuId {
        cx.nearest_idle(home).unwrap_or(home)
    }

    /// Preempts if the running task is ahead by more than the shortest slice, in the newcomer's virtual
    /// time.
    fn preempt(&self, cx: &Cx<'_, Entity>, queue: &mut Queue, task: TaskId) -> Option<CpuId> {
        let running = queue.running?;
        self.charge(cx, queue, running);
        let vtime = |task: TaskId| cx.task(task).policy.vtime.get();
        let enough = fair::virtual_time_of(self.granularity, self.weights.of(cx, task));
        (fair::ahead(vtime(running), vtime(task)) > enough as i64).then_some(cx.cpu)
    }

    fn tick(&self, cx: &Cx<'_, Entity>, queue: &mut Queue, task: TaskId, ran: Ns) -> Resched {
        queue.running = Some(task);
        self.charge(cx, queue, task);
        per_cpu::after(self.slice(self.weights.of(cx, task), queue.load), ran)
    }

    fn balance(&self, cx: &Cx<'_, Entity>, attempt: usize) -> Balance {
        per_cpu::victim(cx, attempt)
    }

    /// Takes the task to which its CPU owes most.
    fn steal(&self, cx: &Cx<'_, Entity>, _: CpuId, victim: &mut Queue) -> Option<TaskId> {
        self.take(cx, victim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness};
    use alloc::string::ToString;

    fn us(n: u64) -> Ns {
        Ns::from_us(n)
    }

    fn harness(params: &str, cpus: usize) -> PolicyHarness<Cfs> {
        PolicyHarness::of_two_classes(&alloc::format!("cfs:{params}"), cpus)
    }

    #[test]
    fn keeps_the_rules_of_every_policy() {
        testkit::check::<Cfs>("cfs:latency=8us,granularity=2us,weight=512");
        // The kit's last phase is too short to show fairness at the scale of the defaults.
        let default = || crate::build::<Cfs>("cfs").unwrap();
        testkit::check_with(default, testkit::Promises { fair: false });
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<Cfs>();
        let error = |text| crate::build::<Cfs>(text).unwrap_err().to_string();
        assert!(error("cfs:granularity=60us").contains("at most as long as `latency`"));
        assert!(error("cfs:weight=1025").contains("a whole number from 1 to 1024"));
        assert!(crate::build::<Cfs>("cfs:latency=5us").is_ok(), "the default gives way");
    }

    #[test]
    fn time_is_shared_by_weight() {
        let mut harness = harness("weight=256", 1);
        let mut had = [0u64; 4];
        (0..4).for_each(|task| harness.enqueue(0, task, Enqueue::New));
        // The initial debts are paid first.
        (0..200).for_each(|_| _ = harness.run(0, us(1)));
        (0..1000).for_each(|_| had[harness.run(0, us(1)) as usize] += 1);
        let shares = [400, 100, 400, 100];
        assert!(had.iter().zip(shares).all(|(had, share)| had.abs_diff(share) <= 2), "{had:?}");
    }

    #[test]
    fn slices_shrink_as_others_wait_but_not_below_the_granularity() {
        let mut harness = harness("latency=40us,granularity=10us", 1);
        (0..7).step_by(2).for_each(|task| harness.enqueue(0, task, Enqueue::New));
        let task = harness.dequeue(0).unwrap();
        assert_eq!(harness.tick(0, task, us(4)), Resched::After(us(6)));
        assert_eq!(harness.tick(0, task, us(10)), Resched::Now);
        harness.dequeue(0).unwrap();
        harness.dequeue(0).unwrap();
        assert_eq!(harness.tick(0, task, us(10)), Resched::After(us(10)), "of two, half");
    }

    #[test]
    fn a_sleeper_is_forgiven_half_a_latency_and_preempts() {
        let mut harness = harness("", 1);
        harness.enqueue(0, 0, Enqueue::New);
        harness.dequeue(0);
        harness.block(0, 0);
        harness.enqueue(0, 2, Enqueue::New);
        harness.dequeue(0);
        harness.set_now(us(1_000));
        harness.enqueue(0, 0, Enqueue::Wakeup);
        let lead = |harness: &PolicyHarness<Cfs>| {
            let vtime = |task| harness.cx(0).task(TaskId(task)).policy.vtime.get();
            fair::ahead(vtime(2), vtime(0))
        };
        assert_eq!(lead(&harness), 25_000);
        assert_eq!(harness.preempt(0, 0), Some(0));
    }

    #[test]
    fn a_new_task_and_a_light_one_do_not_preempt() {
        let mut harness = harness("", 1);
        harness.enqueue(0, 1, Enqueue::New);
        harness.dequeue(0);
        harness.block(0, 1);
        harness.enqueue(0, 0, Enqueue::New);
        harness.dequeue(0);
        harness.enqueue(0, 2, Enqueue::New);
        assert_eq!(harness.preempt(0, 2), None);
        harness.set_now(us(100));
        harness.enqueue(0, 1, Enqueue::Wakeup);
        assert_eq!(harness.preempt(0, 1), None, "its slice is long in its own time");
    }

    #[test]
    fn a_task_that_yields_or_fails_to_commit_lets_the_next_pass() {
        for why in [Enqueue::Yield, Enqueue::CommitFailed] {
            let mut harness = harness("", 1);
            harness.enqueue(0, 0, Enqueue::New);
            harness.enqueue(0, 2, Enqueue::New);
            let first = harness.dequeue(0).unwrap();
            harness.enqueue(0, first, why);
            assert_eq!(harness.drain(0), [2 - first, first], "{why:?}");
        }
    }

    #[test]
    fn a_stolen_task_is_neither_favoured_nor_punished() {
        let mut harness = harness("", 2);
        harness.enqueue(0, 0, Enqueue::New);
        (0..100).for_each(|_| _ = harness.run(0, us(10)));
        assert_eq!(harness.steal(1, 0), Some(0));
        harness.enqueue(1, 2, Enqueue::New);
        harness.pass(us(10));
        // It ran on the thief, whose queue learns of it only now.
        harness.enqueue(1, 0, Enqueue::Preempted);
        let turns: alloc::vec::Vec<_> = (0..6).map(|_| harness.run(1, us(30))).collect();
        assert_eq!(turns, [0, 0, 2, 0, 2, 0], "the other is new and a slice behind");
    }
}
