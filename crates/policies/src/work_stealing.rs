//! `work-stealing`: tasks stay where they are created or woken; idle CPUs steal them.
//!
//! - **Optimises** throughput and locality: a task enters the local queue, and only a CPU that would
//!   otherwise idle pays for looking elsewhere. With a quantum it also bounds how long a long task
//!   delays the short ones behind it.
//! - **Parameters**: `quantum` (a time or `none`, default none: run to completion).
//! - **Complexity**: constant time to enqueue and dequeue; placing and stealing read a hint per CPU.
//! - **Source**: Skyloft, section 5.3 and Table 4 (work stealing, with and without preemption);
//!   Blumofe and Leiserson, J. ACM 46(5), 1999 (random victims).

use crate::one_list::one_list;
use crate::per_cpu;
use heddle_core::{Balance, CpuId, Cx, Model, Ns, ParamError, Params};
use heddle_core::{Policy, Resched, TaskId, TaskList};

/// Work stealing; see `docs/policies/work-stealing.md`.
#[derive(Clone, Debug)]
pub struct WorkStealing {
    quantum: Option<Ns>,
}

impl Policy for WorkStealing {
    one_list!();

    const NAME: &'static str = "work-stealing";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = true;
    const FIFO: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(WorkStealing { quantum: params.ns_or_none("quantum", None)? })
    }

    fn quantum(&self) -> Option<Ns> {
        self.quantum
    }

    /// Home if it is idle, else the idle CPU nearest to home, else the waking CPU: its queue is local,
    /// and what the task waited for is in its cache.
    #[inline]
    fn place(&self, cx: &Cx<'_, ()>, _: TaskId, home: CpuId) -> CpuId {
        cx.nearest_idle(home).unwrap_or(cx.cpu)
    }

    #[inline]
    fn tick(&self, _: &Cx<'_, ()>, _: &mut TaskList, _: TaskId, ran: Ns) -> Resched {
        per_cpu::after_or_never(self.quantum, ran)
    }

    fn balance(&self, cx: &Cx<'_, ()>, attempt: usize) -> Balance {
        per_cpu::victim(cx, attempt)
    }

    /// Takes the oldest task: it has waited longest, and its data is the coldest in the victim's cache.
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
        testkit::check::<WorkStealing>("work-stealing");
        testkit::check::<WorkStealing>("work-stealing:quantum=5us");
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<WorkStealing>();
    }

    #[test]
    fn preempts_only_when_given_a_quantum() {
        let never = &mut PolicyHarness::<WorkStealing>::new("work-stealing:quantum=none", 1);
        assert_eq!(never.tick(0, 0, Ns::MAX), Resched::Never);
        let some = &mut PolicyHarness::<WorkStealing>::new("work-stealing:quantum=1us", 1);
        assert_eq!(some.tick(0, 0, Ns(1)), Resched::After(Ns(999)));
        assert_eq!(some.tick(0, 0, Ns::from_us(1)), Resched::Now);
    }

    #[test]
    fn a_waking_task_stays_with_its_waker_unless_a_cpu_is_idle() {
        let mut harness = PolicyHarness::<WorkStealing>::new("work-stealing", 2);
        harness.set_idle(0, false);
        assert_eq!(harness.place(0, 5, 0), 1);
        harness.set_idle(1, false);
        assert_eq!(harness.place(0, 5, 1), 0);
    }

    #[test]
    fn a_thief_takes_the_oldest() {
        let mut harness = PolicyHarness::<WorkStealing>::new("work-stealing", 2);
        harness.enqueue(0, 3, Enqueue::New);
        harness.enqueue(0, 4, Enqueue::New);
        assert_eq!(harness.steal(1, 0), Some(3));
    }
}
