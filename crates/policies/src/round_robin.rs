//! `round-robin`: each task a quantum, then to the tail.
//!
//! - **Optimises** the tail if sizes vary and are unknown: with a short quantum it approaches processor
//!   sharing, under which a short task never waits for a long one to finish. The price is a switch per
//!   quantum.
//! - **Parameters**: `quantum` (default 100us).
//! - **Complexity**: constant time to enqueue and dequeue; placing and stealing read a hint per CPU.
//! - **Source**: Skyloft, section 5.1 and Table 4 (Round-Robin, per CPU).

use crate::one_list::one_list;
use crate::per_cpu;
use heddle_core::{Balance, BestEffort, CpuId, Cx, FairTerms, Model, Ns, ParamError, Params};
use heddle_core::{Policy, Resched, TaskId, TaskList};

/// Round robin; see `docs/policies/round-robin.md`.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    quantum: Ns,
}

impl Policy for RoundRobin {
    one_list!();

    const NAME: &'static str = "round-robin";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(RoundRobin { quantum: params.ns("quantum", Ns::from_us(100))? })
    }

    fn quantum(&self) -> Option<Ns> {
        Some(self.quantum)
    }

    fn fair_terms(&self) -> Option<FairTerms> {
        Some(FairTerms::new(BestEffort::Alike, self.quantum))
    }

    /// The nearest idle CPU, else home, where the task's data is: its turn comes within a round anyway.
    #[inline]
    fn place(&self, cx: &Cx<'_, ()>, _: TaskId, home: CpuId) -> CpuId {
        cx.nearest_idle(home).unwrap_or(home)
    }

    #[inline]
    fn tick(&self, _: &Cx<'_, ()>, _: &mut TaskList, _: TaskId, ran: Ns) -> Resched {
        per_cpu::after(self.quantum, ran)
    }

    fn balance(&self, cx: &Cx<'_, ()>, attempt: usize) -> Balance {
        per_cpu::victim(cx, attempt)
    }

    /// Takes the task that has waited longest.
    fn steal(&self, cx: &Cx<'_, ()>, _: CpuId, victim: &mut TaskList) -> Option<TaskId> {
        victim.pop_front(cx.tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness};
    use heddle_core::Enqueue;

    #[test]
    fn keeps_the_rules_of_every_policy() {
        testkit::check::<RoundRobin>("round-robin:quantum=5us");
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<RoundRobin>();
    }

    #[test]
    fn a_preempted_task_goes_behind_all_others() {
        let mut harness = PolicyHarness::<RoundRobin>::new("round-robin", 1);
        harness.enqueue(0, 0, Enqueue::New);
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(harness.dequeue(0), Some(0));
        harness.enqueue(0, 0, Enqueue::Preempted);
        assert_eq!(harness.drain(0), [1, 0]);
    }

    #[test]
    fn the_quantum_ends_when_it_has_been_used() {
        let mut harness = PolicyHarness::<RoundRobin>::new("round-robin:quantum=10us", 1);
        assert_eq!(harness.tick(0, 0, Ns::ZERO), Resched::After(Ns::from_us(10)));
        assert_eq!(harness.tick(0, 0, Ns(9_999)), Resched::After(Ns(1)));
        assert_eq!(harness.tick(0, 0, Ns::from_us(10)), Resched::Now);
        assert_eq!(harness.tick(0, 0, Ns::MAX), Resched::Now);
    }

    #[test]
    fn a_waking_task_goes_to_an_idle_cpu_else_home() {
        let mut harness = PolicyHarness::<RoundRobin>::new("round-robin", 4);
        (0..3).for_each(|cpu| harness.set_idle(cpu, false));
        assert_eq!(harness.place(0, 0, 1), 3);
        harness.set_idle(3, false);
        assert_eq!(harness.place(0, 0, 1), 1);
    }
}
