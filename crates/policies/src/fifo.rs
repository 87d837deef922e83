//! `fifo`: first come, first served, each task to completion.
//!
//! - **Optimises** the mean and the tail if service times vary little, at the least cost: one central
//!   queue keeps every CPU busy (the c-FCFS of the literature) and nothing is ever preempted. Once
//!   every CPU has a long task, all others queue behind them.
//! - **Parameters**: none.
//! - **Complexity**: constant time for every operation; one queue, which all CPUs share.
//! - **Source**: ghOSt, section 4.1 (the global agent of Fig. 5: one FIFO run queue for all CPUs);
//!   Skyloft, section 5.1, Fig. 6 (Skyloft-FIFO: the quantum that never ends).

use crate::one_list::one_list;
use heddle_core::{Model, ParamError, Params, Policy};

/// First come, first served; see `docs/policies/fifo.md`.
#[derive(Clone, Debug)]
pub struct Fifo;

impl Policy for Fifo {
    one_list!();

    const NAME: &'static str = "fifo";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = true;
    const FIFO: bool = true;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Fifo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit;
    use heddle_core::Enqueue;

    #[test]
    fn keeps_the_rules_of_every_policy() {
        testkit::check::<Fifo>("fifo");
    }

    #[test]
    fn takes_no_parameters() {
        testkit::check_params::<Fifo>();
    }

    #[test]
    fn runs_tasks_in_the_order_of_arrival_and_never_preempts() {
        let mut harness = testkit::PolicyHarness::<Fifo>::new("fifo", 1);
        for task in [2, 0, 1] {
            harness.enqueue(0, task, Enqueue::New);
        }
        assert_eq!(harness.drain(0), [2, 0, 1]);
        assert_eq!(harness.policy.quantum(), None);
    }
}
