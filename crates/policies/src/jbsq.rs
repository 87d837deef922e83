//! `jbsq`: a central queue, and a short bounded queue before each CPU (join bounded shortest queue).
//!
//! - **Optimises** the tail like one central queue, for systems where moving a task from that queue to
//!   a CPU takes time: when a CPU finishes a task, its next one is already there. With a bound of 1 it
//!   is `fifo`; the larger the bound, the closer to plain join-shortest-queue.
//! - **Parameters**: `bound` (default 2, at most 8): how many tasks a CPU may have, the running one
//!   included.
//! - **Complexity**: a step per load below `bound` and per 64 CPUs to find the least loaded CPU;
//!   otherwise constant time.
//! - **Source**: Kogias et al., R2P2: Making RPCs first-class datacenter citizens, USENIX ATC 2019
//!   (JBSQ(n)).
//!
//! # Invariants
//!
//! - **I1** A task bound to a CPU runs there and nowhere else, in the order in which tasks were bound.
//! - **I2** While any busy CPU has room, the central queue holds at most one task per idle CPU. Idle
//!   CPUs need no binding: the first to ask takes the oldest task, so a hook may wake any of them.

use crate::{options, options::FEW};
use heddle_core::{CpuId, CpuSet, Cx, Enqueue, Model, ParamError, Params};
use heddle_core::{Policy, TaskId, TaskList, Var};

/// Join bounded shortest queue; see `docs/policies/jbsq.md`.
#[derive(Clone, Debug)]
pub struct Jbsq {
    bound: usize,
}

/// The central queue and the queue of each CPU.
#[derive(Debug)]
pub struct Queues {
    central: TaskList,
    bound: [TaskList; CpuSet::CAPACITY],
    /// How many tasks each CPU has: bound to it, or running.
    load: [u32; CpuSet::CAPACITY],
    /// At `n`: the CPUs that have more than `n` tasks.
    above: [CpuSet; FEW],
    waiting: usize,
    /// Where the search among equals starts, so that they take turns.
    turn: CpuId,
}

/// The CPU that runs the task, plus one; 0 if it does not run.
#[derive(Debug, Default)]
pub struct CpuSlot(Var);

impl Queues {
    fn grow(&mut self, cpu: CpuId) {
        let load = &mut self.load[cpu.index()];
        if let Some(above) = self.above.get_mut(*load as usize) {
            above.insert(cpu);
        }
        *load += 1;
    }

    fn shrink(&mut self, cpu: CpuId) {
        let load = &mut self.load[cpu.index()];
        *load -= 1;
        if let Some(above) = self.above.get_mut(*load as usize) {
            above.remove(cpu);
        }
    }

    /// Returns the busy CPU with the fewest tasks, if it has fewer than `bound`.
    fn shortest(&self, bound: usize) -> Option<CpuId> {
        (1..bound).find_map(|n| self.above[0].minus(&self.above[n]).next_from(self.turn))
    }

    /// Binds centrally waiting tasks in excess of the idle CPUs, as far as there is room (I2).
    fn bind(&mut self, cx: &Cx<'_, CpuSlot>, bound: usize) {
        let idle = cx.topology().len().saturating_sub(self.above[0].len());
        while self.central.len() > idle
            && let Some(cpu) = self.shortest(bound)
            && let Some(task) = self.central.pop_front(cx.tasks)
        {
            self.bound[cpu.index()].push_back(cx.tasks, task);
            self.grow(cpu);
            self.turn = CpuId((cpu.0 + 1) % CpuSet::CAPACITY as u16);
        }
    }

    /// Takes the oldest task bound to `cpu`, else the oldest unbound one.
    #[inline]
    fn take(&mut self, cx: &Cx<'_, CpuSlot>, cpu: CpuId, bound: usize) -> Option<TaskId> {
        let own = self.bound[cpu.index()].pop_front(cx.tasks);
        let task = own.or_else(|| {
            let task = self.central.pop_front(cx.tasks)?;
            self.grow(cpu);
            Some(task)
        })?;
        self.waiting -= 1;
        cx.task(task).policy.0.set(u64::from(cpu.0) + 1);
        self.bind(cx, bound);
        Some(task)
    }

    /// Records that `task` stopped running, if it ran.
    fn leave(&mut self, cx: &Cx<'_, CpuSlot>, task: TaskId) {
        let on = &cx.task(task).policy.0;
        if let Some(cpu) = on.get().checked_sub(1) {
            on.set(0);
            self.shrink(CpuId(cpu as u16));
        }
    }
}

impl Policy for Jbsq {
    type Task = CpuSlot;
    type Queue = Queues;

    const NAME: &'static str = "jbsq";
    const MODEL: Model = Model::Central;
    /// Tasks bound to a busy CPU keep waiting even if another CPU has become idle since.
    const WORK_CONSERVING: bool = false;
    const COUNTS_RUNNING: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Jbsq { bound: options::few(params, "bound", 2)? })
    }

    fn queue(&self) -> Queues {
        Queues {
            central: TaskList::default(),
            bound: core::array::from_fn(|_| TaskList::default()),
            load: [0; CpuSet::CAPACITY],
            above: [CpuSet::EMPTY; FEW],
            waiting: 0,
            turn: CpuId(0),
        }
    }

    #[inline]
    fn len(&self, queue: &Queues) -> usize {
        queue.waiting
    }

    fn task_init(&self, cx: &Cx<'_, CpuSlot>, task: TaskId) {
        cx.task(task).policy.0.set(0);
    }

    fn task_exit(&self, cx: &Cx<'_, CpuSlot>, queue: &mut Queues, task: TaskId) {
        queue.leave(cx, task);
        queue.bind(cx, self.bound);
    }

    #[inline]
    fn enqueue(&self, cx: &Cx<'_, CpuSlot>, queue: &mut Queues, task: TaskId, _: Enqueue) {
        queue.leave(cx, task);
        queue.waiting += 1;
        queue.central.push_back(cx.tasks, task);
        queue.bind(cx, self.bound);
    }

    #[inline]
    fn dequeue(&self, cx: &Cx<'_, CpuSlot>, queue: &mut Queues) -> Option<TaskId> {
        queue.take(cx, cx.cpu, self.bound)
    }

    fn block(&self, cx: &Cx<'_, CpuSlot>, queue: &mut Queues, task: TaskId) {
        queue.leave(cx, task);
        queue.bind(cx, self.bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness};

    /// `tasks` have arrived in order, and every CPU has taken one.
    fn busy(text: &str, cpus: u16, tasks: u32) -> PolicyHarness<Jbsq> {
        let mut harness = PolicyHarness::new(text, cpus.into());
        for task in 0..tasks {
            harness.enqueue(0, task, Enqueue::New);
            if task < cpus.into() {
                assert_eq!(harness.dequeue(task as u16), Some(task));
            }
        }
        harness
    }

    #[test]
    fn keeps_the_rules_of_every_policy() {
        for bound in ["1", "2", "8"] {
            testkit::check::<Jbsq>(&alloc::format!("jbsq:bound={bound}"));
        }
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<Jbsq>();
        assert!(crate::build::<Jbsq>("jbsq:bound=9").is_err());
    }

    #[test]
    fn any_idle_cpu_takes_the_oldest() {
        let mut harness = PolicyHarness::<Jbsq>::new("jbsq", 3);
        (0..3).for_each(|task| harness.enqueue(0, task, Enqueue::New));
        assert_eq!(
            (harness.dequeue(2), harness.dequeue(0), harness.dequeue(1)),
            (Some(0), Some(1), Some(2))
        );
    }

    #[test]
    fn each_busy_cpu_gets_one_more_in_turn_and_the_rest_wait_centrally() {
        let mut harness = busy("jbsq:bound=2", 2, 7);
        harness.exit(0, 0);
        assert_eq!(harness.dequeue(0), Some(2), "bound early");
        harness.exit(0, 2);
        assert_eq!(harness.dequeue(0), Some(4), "the oldest centrally had the room");
        assert_eq!(harness.dequeue(1), Some(3), "its own");
    }

    #[test]
    fn the_cpu_with_the_fewest_is_bound_to_first() {
        let mut harness = busy("jbsq:bound=3", 2, 4);
        harness.exit(1, 1);
        assert_eq!(harness.dequeue(1), Some(3));
        harness.enqueue(0, 5, Enqueue::New);
        harness.exit(1, 3);
        assert_eq!(harness.dequeue(1), Some(5), "not behind task 2 at the other");
    }

    #[test]
    fn bound_tasks_are_not_stolen() {
        let mut harness = busy("jbsq:bound=2", 2, 3);
        harness.exit(1, 1);
        assert_eq!(harness.dequeue(1), None);
        harness.exit(0, 0);
        assert_eq!(harness.dequeue(0), Some(2));
    }

    #[test]
    fn a_bound_of_one_is_a_central_queue() {
        let mut harness = busy("jbsq:bound=1", 2, 5);
        harness.exit(1, 1);
        assert_eq!((harness.dequeue(1), harness.dequeue(0)), (Some(2), Some(3)));
    }

    #[test]
    fn a_failed_commit_gives_the_room_back() {
        let mut harness = busy("jbsq:bound=2", 1, 1);
        harness.enqueue(0, 0, Enqueue::CommitFailed);
        assert_eq!(harness.dequeue(0), Some(0));
        harness.enqueue(0, 1, Enqueue::New);
        harness.block(0, 0);
        assert_eq!(harness.drain(0), [1]);
    }
}
