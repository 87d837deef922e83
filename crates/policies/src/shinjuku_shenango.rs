//! `shinjuku-shenango`: latency-critical tasks as under `shinjuku`; best-effort ones get what they
//! leave.
//!
//! - **Optimises** the tail of latency-critical tasks as if they were alone, and gives best-effort
//!   tasks every CPU that these leave idle: a machine kept lightly loaded for the tail's sake does
//!   other work meanwhile.
//! - **Parameters**: `quantum` (default 30us) of latency-critical tasks; `congestion` (default 5us):
//!   how long one of them may wait before best-effort tasks yield; `check` (default 5us): how often a
//!   best-effort task checks whether to yield; `long` (default 1ms, at least `quantum`): the quantum
//!   among best-effort tasks.
//! - **Complexity**: constant time for every operation; one queue pair, which all CPUs share.
//! - **Source**: Skyloft, section 5.2, "Multiple workloads"; ghOSt, section 4.2, Fig. 6b-c; the
//!   congestion check is that of Ousterhout et al., Shenango, NSDI 2019.
//!
//! # Invariants
//!
//! - **I1** No CPU takes a best-effort task while a latency-critical one waits.
//! - **I2** CPUs on their way from best effort to the queue, called *claimed*, never become more than
//!   there are waiting latency-critical tasks. A claim ends when its CPU asks for a task, or is asked
//!   again because it did not obey.

use crate::options;
use crate::per_cpu::{after, after_looking};
use heddle_core::{
    BestEffort, Class, CpuId, CpuSet, Cx, Enqueue, FairTerms, Model, Ns, ParamError, Params,
};
use heddle_core::{Policy, Resched, TaskId, TaskList, Var};

/// Shinjuku with Shenango's core allocation; see `docs/policies/shinjuku-shenango.md`.
#[derive(Clone, Debug)]
pub struct ShinjukuShenango {
    quantum: Ns,
    long: Ns,
    congestion: Ns,
    check: Ns,
}

/// The run queues of all CPUs.
#[derive(Debug, Default)]
pub struct Queues {
    critical: TaskList,
    best_effort: TaskList,
    /// CPUs whose last task was best effort. Correct for every CPU that runs something.
    lent_cpus: CpuSet,
    /// CPUs notified to yield that have not asked for a task since (I2).
    claimed: CpuSet,
}

/// When the latency-critical task was enqueued.
#[derive(Debug, Default)]
pub struct Since(Var<Ns>);

impl ShinjukuShenango {
    /// Returns whether the oldest latency-critical task has waited too long and no CPU is on its way to
    /// it yet.
    fn is_congested(&self, cx: &Cx<'_, Since>, queue: &Queues) -> bool {
        let unclaimed = queue.critical.len() > queue.claimed.len();
        let waited = |oldest| cx.now() - cx.task(oldest).policy.0.get();
        unclaimed && queue.critical.front().is_some_and(|task| waited(task) > self.congestion)
    }

    /// The next check of a best-effort task that runs on `cx.cpu`.
    fn tick_best_effort(&self, cx: &Cx<'_, Since>, queue: &mut Queues, ran: Ns) -> Resched {
        queue.claimed.remove(cx.cpu);
        let claim = ran >= self.check && self.is_congested(cx, queue);
        let answer = if claim { Resched::Now } else { after_looking(self.long, self.check, ran) };
        if answer == Resched::Now && !queue.critical.is_empty() {
            queue.claimed.insert(cx.cpu);
        }
        answer
    }
}

fn is_critical(cx: &Cx<'_, Since>, task: TaskId) -> bool {
    cx.task(task).attrs().class == Class::LC
}

impl Policy for ShinjukuShenango {
    type Task = Since;
    type Queue = Queues;

    const NAME: &'static str = "shinjuku-shenango";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = true;
    const PREEMPTS: bool = true;
    const PUBLISHES: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        let quantum = params.ns("quantum", Ns::from_us(30))?;
        Ok(ShinjukuShenango {
            quantum,
            long: options::long(params, quantum)?,
            congestion: params.ns("congestion", Ns::from_us(5))?,
            check: params.ns("check", Ns::from_us(5))?,
        })
    }

    fn queue(&self) -> Queues {
        Queues::default()
    }

    #[inline]
    fn len(&self, queue: &Queues) -> usize {
        queue.critical.len() + queue.best_effort.len()
    }

    /// A best-effort task may have to yield at its first check.
    fn quantum(&self) -> Option<Ns> {
        Some(self.quantum.min(self.check))
    }

    fn fair_terms(&self) -> Option<FairTerms> {
        let terms = FairTerms::new(BestEffort::Below, self.quantum);
        Some(FairTerms { be_slice: self.long, ..terms })
    }

    #[inline]
    fn enqueue(&self, cx: &Cx<'_, Since>, queue: &mut Queues, task: TaskId, _: Enqueue) {
        if is_critical(cx, task) {
            cx.task(task).policy.0.set(cx.now());
            queue.critical.push_back(cx.tasks, task);
        } else {
            queue.best_effort.push_back(cx.tasks, task);
        }
    }

    /// Latency-critical first (I1).
    #[inline]
    fn dequeue(&self, cx: &Cx<'_, Since>, queue: &mut Queues) -> Option<TaskId> {
        queue.claimed.remove(cx.cpu);
        queue.lent_cpus.remove(cx.cpu);
        queue.critical.pop_front(cx.tasks).or_else(|| {
            let task = queue.best_effort.pop_front(cx.tasks)?;
            queue.lent_cpus.insert(cx.cpu);
            Some(task)
        })
    }

    fn remove(&self, cx: &Cx<'_, Since>, queue: &mut Queues, task: TaskId) -> bool {
        queue.claimed.remove(cx.cpu);
        if is_critical(cx, task) {
            queue.lent_cpus.remove(cx.cpu);
            queue.critical.remove(cx.tasks, task);
        } else {
            queue.lent_cpus.insert(cx.cpu);
            queue.best_effort.remove(cx.tasks, task);
        }
        true
    }

    fn upcoming(&self, cx: &Cx<'_, Since>, queue: &Queues, each: &mut dyn FnMut(TaskId) -> bool) {
        let lists = [&queue.critical, &queue.best_effort];
        lists.into_iter().flat_map(|list| list.iter(cx.tasks)).all(each);
    }

    /// If the queue is congested already, preempts a best-effort task without waiting for its next
    /// check.
    fn preempt(&self, cx: &Cx<'_, Since>, queue: &mut Queues, _: TaskId) -> Option<CpuId> {
        if !self.is_congested(cx, queue) {
            return None;
        }
        let cpu = queue.lent_cpus.minus(&queue.claimed).next_from(cx.cpu)?;
        queue.claimed.insert(cpu);
        Some(cpu)
    }

    /// A latency-critical task is preempted only for another one; while none waits, it has the long
    /// quantum.
    #[inline]
    fn tick(&self, cx: &Cx<'_, Since>, queue: &mut Queues, task: TaskId, ran: Ns) -> Resched {
        match is_critical(cx, task) {
            true if queue.critical.is_empty() => after_looking(self.long, self.quantum, ran),
            true => after(self.quantum, ran),
            false => self.tick_best_effort(cx, queue, ran),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness, Promises};
    use alloc::string::String;
    use heddle_core::TaskAttrs;

    const UNFAIR: Promises = Promises { fair: false };

    /// Tasks 0 to 7 are latency-critical, 8 to 15 best-effort.
    fn harness(text: &str, cpus: usize) -> PolicyHarness<ShinjukuShenango> {
        let mut harness = PolicyHarness::new(text, cpus);
        let attrs = |class| TaskAttrs { class, ..TaskAttrs::default() };
        (0..8).for_each(|task| harness.init(task, attrs(Class::LC)));
        (8..16).for_each(|task| harness.init(task, attrs(Class::BE)));
        harness
    }

    /// Four CPUs that have run best-effort tasks 8 to 11 since time zero.
    fn with_claimed_cpus() -> PolicyHarness<ShinjukuShenango> {
        let mut harness = harness("shinjuku-shenango", 4);
        for cpu in 0..4 {
            harness.enqueue(cpu, 8 + u32::from(cpu), Enqueue::New);
            harness.dequeue(cpu);
        }
        harness
    }

    fn us(n: u64) -> Ns {
        Ns::from_us(n)
    }

    #[test]
    fn keeps_the_rules_of_every_policy_but_fairness() {
        for text in ["", ":quantum=5us,long=20us,congestion=1us,check=2us", ":check=1ms"] {
            let make = || crate::build(&(String::from("shinjuku-shenango") + text)).unwrap();
            testkit::check_with::<ShinjukuShenango>(make, UNFAIR);
        }
    }

    #[test]
    fn best_effort_starves_while_critical_tasks_come_and_says_so() {
        let make = || crate::build::<ShinjukuShenango>("shinjuku-shenango").unwrap();
        let violation = testkit::violation(make, Promises::default());
        assert!(matches!(violation, Some(testkit::Violation::Starved(_))), "{violation:?}");
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<ShinjukuShenango>();
    }

    #[test]
    fn idle_cpus_take_critical_tasks_first() {
        let mut harness = harness("shinjuku-shenango", 1);
        [8, 0, 9, 1].into_iter().for_each(|task| harness.enqueue(0, task, Enqueue::New));
        assert_eq!(harness.drain(0), [0, 1, 8, 9]);
    }

    #[test]
    fn a_critical_task_has_its_quantum_for_its_like_and_the_long_one_otherwise() {
        let mut harness = harness("shinjuku-shenango", 1);
        harness.enqueue(0, 0, Enqueue::New);
        harness.dequeue(0);
        harness.enqueue(0, 8, Enqueue::New);
        assert_eq!(harness.tick(0, 0, us(30)), Resched::After(us(30)));
        assert_eq!(harness.tick(0, 0, us(1000)), Resched::Now);
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(harness.tick(0, 0, us(30)), Resched::Now);
    }

    #[test]
    fn best_effort_tasks_take_turns_of_the_long_quantum() {
        let mut harness = with_claimed_cpus();
        harness.enqueue(0, 12, Enqueue::New);
        assert_eq!(harness.tick(0, 8, us(5)), Resched::After(us(5)));
        assert_eq!(harness.tick(0, 8, us(999)), Resched::After(us(1)));
        assert_eq!(harness.tick(0, 8, us(1000)), Resched::Now);
    }

    #[test]
    fn a_wait_below_the_limit_claims_no_cpu() {
        let mut harness = with_claimed_cpus();
        harness.enqueue(0, 0, Enqueue::New);
        assert_eq!(harness.preempt(0, 0), None);
        harness.set_now(us(5));
        assert_eq!(harness.tick(0, 8, us(5)), Resched::After(us(5)));
        harness.set_now(us(6));
        assert_eq!(harness.tick(0, 8, us(4)), Resched::After(us(1)), "not checked yet");
        assert_eq!(harness.tick(0, 8, us(6)), Resched::Now);
    }

    #[test]
    fn as_many_cpus_are_claimed_as_critical_tasks_wait() {
        let mut harness = with_claimed_cpus();
        harness.enqueue(0, 0, Enqueue::New);
        harness.set_now(us(100));
        harness.enqueue(0, 1, Enqueue::New);
        assert_eq!(harness.preempt(1, 1), Some(1));
        assert_eq!(harness.tick(2, 10, us(100)), Resched::Now);
        assert_eq!(harness.tick(3, 11, us(100)), Resched::After(us(5)), "both have a CPU");
        assert_eq!((harness.preempt(0, 1), harness.tick(1, 9, us(100))), (None, Resched::Now));
    }

    #[test]
    fn a_claim_lasts_until_its_cpu_asks_for_a_task() {
        let mut harness = with_claimed_cpus();
        harness.enqueue(0, 0, Enqueue::New);
        harness.set_now(us(100));
        assert_eq!(harness.tick(0, 8, us(100)), Resched::Now);
        harness.enqueue(0, 8, Enqueue::Preempted);
        assert_eq!(harness.tick(1, 9, us(100)), Resched::After(us(5)));
        assert_eq!(harness.dequeue(0), Some(0));
        harness.enqueue(0, 1, Enqueue::New);
        harness.set_now(us(200));
        assert_eq!(harness.tick(1, 9, us(200)), Resched::Now);
    }

    #[test]
    fn cpus_with_critical_tasks_are_never_claimed() {
        let mut harness = harness("shinjuku-shenango", 1);
        (0..2).for_each(|task| harness.enqueue(0, task, Enqueue::New));
        harness.dequeue(0);
        harness.set_now(us(100));
        assert_eq!(harness.preempt(0, 1), None);
    }
}
