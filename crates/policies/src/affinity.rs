//! `queue-affinity` and `cpu-affinity`: a task that comes back to the same CPU finds its caches warm.
//!
//! - **Optimise** throughput of uniform work, where nobody is overloaded while others idle, and a miss costs more than a short wait.
//!   `queue-affinity` keeps a task where it came first, `cpu-affinity` takes it to the CPU where it comes in: the one that processed the
//!   packet, so that connections are followed when the network card moves them.
//! - **Parameters**: none.
//! - **Complexity**: constant time for every operation.
//! - **Source**: SKQ, section 4.1; its section 6.1 prefers CPU affinity in general.

use crate::one_list::one_list;
use heddle_core::{CpuId, Cx, Enqueue, Model, ParamError, Params, Policy, TaskId, TaskList, Var};

/// Where it came first; see `docs/policies/queue-affinity.md`.
#[derive(Clone, Debug)]
pub struct QueueAffinity;

/// One more than the CPU where a task came first; 0 while it has not.
#[derive(Debug, Default)]
pub struct First(Var);

impl First {
    /// The CPU where the task came first, which is `here` if it comes first now.
    #[inline]
    pub(crate) fn or_here(&self, here: CpuId, cpus: usize) -> CpuId {
        match self.0.get() {
            0 => {
                self.0.set(u64::from(here.0) + 1);
                here
            }
            // There may be fewer CPUs by now.
            first => CpuId(((first - 1) % cpus as u64) as u16),
        }
    }

    pub(crate) fn forget(&self) {
        self.0.set(0);
    }
}

impl Policy for QueueAffinity {
    type Task = First;
    type Queue = TaskList;

    const NAME: &'static str = "queue-affinity";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = false;
    const BALANCES: bool = false;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(QueueAffinity)
    }

    fn queue(&self) -> TaskList {
        TaskList::default()
    }

    #[inline]
    fn len(&self, queue: &TaskList) -> usize {
        queue.len()
    }

    fn task_init(&self, cx: &Cx<'_, First>, task: TaskId) {
        cx.task(task).policy.forget();
    }

    #[inline]
    fn enqueue(&self, cx: &Cx<'_, First>, queue: &mut TaskList, task: TaskId, _: Enqueue) {
        queue.push_back(cx.tasks, task);
    }

    #[inline]
    fn dequeue(&self, cx: &Cx<'_, First>, queue: &mut TaskList) -> Option<TaskId> {
        queue.pop_front(cx.tasks)
    }

    #[inline]
    fn place(&self, cx: &Cx<'_, First>, task: TaskId, _: CpuId) -> CpuId {
        cx.task(task).policy.or_here(cx.cpu, cx.topology().len())
    }
}

/// Where it comes in; see `docs/policies/cpu-affinity.md`.
#[derive(Clone, Debug)]
pub struct CpuAffinity;

impl Policy for CpuAffinity {
    one_list!();

    const NAME: &'static str = "cpu-affinity";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = false;
    const BALANCES: bool = false;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(CpuAffinity)
    }

    #[inline]
    fn place(&self, cx: &Cx<'_, ()>, _: TaskId, _: CpuId) -> CpuId {
        cx.cpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, Desk};

    #[test]
    fn both_keep_the_rules_of_every_policy() {
        testkit::check::<QueueAffinity>("queue-affinity");
        testkit::check::<CpuAffinity>("cpu-affinity");
        testkit::check_params::<QueueAffinity>();
        testkit::check_params::<CpuAffinity>();
    }

    #[test]
    fn queue_affinity_stays_where_a_task_came_first_and_cpu_affinity_follows() {
        let mut queue = Desk::<QueueAffinity>::new("queue-affinity", 4);
        assert_eq!((queue.place(2, 7, 0), queue.place(3, 7, 1), queue.place(3, 8, 1)), (2, 2, 3));
        let mut cpu = Desk::<CpuAffinity>::new("cpu-affinity", 4);
        assert_eq!((cpu.place(2, 7, 0), cpu.place(3, 7, 1)), (2, 3));
    }

    #[test]
    fn a_task_whose_cpu_has_gone_gets_one_that_is_there() {
        let first = First::default();
        assert_eq!(first.or_here(CpuId(5), 8), CpuId(5));
        assert_eq!(first.or_here(CpuId(0), 4), CpuId(1));
    }
}
