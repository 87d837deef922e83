//! `shinjuku`: one queue for all CPUs, each task a quantum, then to the tail.
//!
//! - **Optimises** the tail if a few tasks of unknown identity are far longer than the others: no task
//!   waits while a CPU idles, and none waits for a long one to end. Processor sharing by one queue
//!   instead of many.
//! - **Parameters**: `quantum` (default 30us, the best of Skyloft's Fig. 7a).
//! - **Complexity**: constant time for every operation; one queue, which all CPUs share.
//! - **Source**: Kaffes et al., Shinjuku, NSDI 2019 (the single queue); Skyloft, section 5.2; ghOSt, section 4.2.

use crate::one_list::one_list;
use crate::per_cpu;
use heddle_core::{
    BestEffort, Cx, FairTerms, Model, Ns, ParamError, Params, Policy, Resched, TaskId, TaskList,
};

/// Preemption to the tail of a central queue; see `docs/policies/shinjuku.md`.
#[derive(Clone, Debug)]
pub struct Shinjuku {
    quantum: Ns,
}

impl Policy for Shinjuku {
    one_list!();

    const NAME: &'static str = "shinjuku";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Shinjuku { quantum: params.ns("quantum", Ns::from_us(30))? })
    }

    fn quantum(&self) -> Option<Ns> {
        Some(self.quantum)
    }

    fn fair_terms(&self) -> Option<FairTerms> {
        Some(FairTerms::new(BestEffort::Alike, self.quantum))
    }

    #[inline]
    fn tick(&self, _: &Cx<'_, ()>, _: &mut TaskList, _: TaskId, ran: Ns) -> Resched {
        per_cpu::after(self.quantum, ran)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness};
    use heddle_core::Enqueue;

    #[test]
    fn keeps_the_rules_of_every_policy() {
        testkit::check::<Shinjuku>("shinjuku:quantum=5us");
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<Shinjuku>();
    }

    #[test]
    fn a_long_task_goes_behind_all_others_after_each_quantum() {
        let mut harness = PolicyHarness::<Shinjuku>::new("shinjuku", 2);
        (0..3).for_each(|task| harness.enqueue(0, task, Enqueue::New));
        assert_eq!((harness.dequeue(0), harness.dequeue(1)), (Some(0), Some(1)));
        assert_eq!(harness.tick(0, 0, Ns::from_us(29)), Resched::After(Ns::from_us(1)));
        assert_eq!(harness.tick(0, 0, Ns::from_us(30)), Resched::Now);
        harness.enqueue(0, 0, Enqueue::Preempted);
        assert_eq!(harness.drain(0), [2, 0]);
    }
}
