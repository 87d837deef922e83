//! `cpu-affinity`: a task goes to the CPU where it arrives: the one that processed its packet or woke
//! it.
//!
//! - **Optimises** throughput of uniform work, as `queue-affinity` does, and follows connections when
//!   the network card moves them.
//! - **Parameters**: none.
//! - **Complexity**: constant time for every operation.
//! - **Source**: SKQ, section 4.1; its section 6.1 prefers this to queue affinity in general.

use crate::one_list::one_list;
use heddle_core::{CpuId, Cx, Model, ParamError, Params, Policy, TaskId};

/// Places tasks where they arrive; see `docs/policies/cpu-affinity.md`.
#[derive(Clone, Debug)]
pub struct CpuAffinity;

impl Policy for CpuAffinity {
    one_list!();

    const NAME: &'static str = "cpu-affinity";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = false;
    const FIFO: bool = true;
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
    use crate::testkit::{self, PolicyHarness};

    #[test]
    fn keeps_the_rules_of_every_policy() {
        testkit::check::<CpuAffinity>("cpu-affinity");
        testkit::check_params::<CpuAffinity>();
    }

    #[test]
    fn a_task_follows_where_it_comes_in() {
        let harness = PolicyHarness::<CpuAffinity>::new("cpu-affinity", 4);
        assert_eq!((harness.place(2, 7, 0), harness.place(3, 7, 1)), (2, 3));
    }
}
