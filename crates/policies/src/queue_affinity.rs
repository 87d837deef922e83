//! `queue-affinity`: a task stays on the CPU where it first arrived.
//!
//! - **Optimises** throughput of uniform work, if no CPU is overloaded while others idle and a miss
//!   costs more than a short wait.
//! - **Parameters**: none.
//! - **Complexity**: constant time for every operation.
//! - **Source**: SKQ, section 4.1.

use crate::one_list::one_list;
use heddle_core::{CpuId, Cx, Model, ParamError, Params, Policy, TaskId, Var};

/// Places tasks where they first arrived; see `docs/policies/queue-affinity.md`.
#[derive(Clone, Debug)]
pub struct QueueAffinity;

/// The CPU where a task first arrived, plus one; 0 if it has not arrived yet.
#[derive(Debug, Default)]
pub struct First(Var);

impl First {
    /// Returns the CPU where the task first arrived; `here` if this is its first arrival.
    #[inline]
    pub(crate) fn resolve(&self, here: CpuId, cpus: usize) -> CpuId {
        match self.0.get() {
            0 => {
                self.0.set(u64::from(here.0) + 1);
                here
            }
            // The machine may have fewer CPUs by now.
            first => CpuId(((first - 1) % cpus as u64) as u16),
        }
    }

    pub(crate) fn forget(&self) {
        self.0.set(0);
    }
}

impl Policy for QueueAffinity {
    one_list!(First);

    const NAME: &'static str = "queue-affinity";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = false;
    const FIFO: bool = true;
    const BALANCES: bool = false;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(QueueAffinity)
    }

    fn task_init(&self, cx: &Cx<'_, First>, task: TaskId) {
        cx.task(task).policy.forget();
    }

    #[inline]
    fn place(&self, cx: &Cx<'_, First>, task: TaskId, _: CpuId) -> CpuId {
        cx.task(task).policy.resolve(cx.cpu, cx.topology().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness};

    #[test]
    fn keeps_the_rules_of_every_policy() {
        testkit::check::<QueueAffinity>("queue-affinity");
        testkit::check_params::<QueueAffinity>();
    }

    #[test]
    fn a_task_stays_where_it_came_first() {
        let harness = PolicyHarness::<QueueAffinity>::new("queue-affinity", 4);
        assert_eq!(
            (harness.place(2, 7, 0), harness.place(3, 7, 1), harness.place(3, 8, 1)),
            (2, 2, 3)
        );
    }

    #[test]
    fn a_task_whose_cpu_is_gone_gets_an_existing_one() {
        let first = First::default();
        assert_eq!(first.resolve(CpuId(5), 8), CpuId(5));
        assert_eq!(first.resolve(CpuId(0), 4), CpuId(1));
    }
}
