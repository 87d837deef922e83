//! `hybrid`: a task goes where its caches are warm, unless another CPU would serve it enough sooner to
//! be worth a miss; idle CPUs steal.
//!
//! - **Optimises** the tail if work is imbalanced (few tasks are much longer than most), and moves as
//!   little as it can.
//! - **Parameters**: `affinity` (`cpu`, `queue` or `none`, default `cpu`): the first candidate is the
//!   CPU where the task arrives, the CPU where it arrived first, or a random one; `choices` (default 2,
//!   at most 8): the number of other random CPUs compared with it; `penalty` (default 500ns): how much
//!   sooner another CPU must serve the task if the candidate is warm; `steal` (default 1, at most 8):
//!   how many tasks an idle CPU takes from another at once; `retry` (a time or `none`, default none):
//!   when it looks again after finding nothing.
//! - **Complexity**: constant time for every operation; placing reads a hint for each candidate,
//!   stealing one for each CPU.
//! - **Source**: SKQ, section 4.2 (expected wait, work stealing, hybrid policies); the penalty of 1000
//!   cycles is that of its code.

use crate::one_list::one_list;
use crate::queue_affinity::First;
use crate::{options, per_cpu};
use heddle_core::{Balance, CpuId, Cx, Model, Ns, ParamError, Params};
use heddle_core::{Policy, TaskId, TaskList};

/// Affinity, expected waits and stealing; see `docs/policies/hybrid.md`.
#[derive(Clone, Debug)]
pub struct Hybrid {
    affinity: Affinity,
    choices: usize,
    penalty: Ns,
    steal: usize,
    retry: Option<Ns>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Affinity {
    Cpu,
    Queue,
    None,
}

fn affinity<'a>(params: &mut Params<'a>) -> Result<Affinity, ParamError<'a>> {
    match params.text("affinity") {
        None | Some("cpu") => Ok(Affinity::Cpu),
        Some("queue") => Ok(Affinity::Queue),
        Some("none") => Ok(Affinity::None),
        Some(given) => {
            Err(ParamError::Value { key: "affinity", given, allowed: "`cpu`, `queue` or `none`" })
        }
    }
}

impl Hybrid {
    fn candidate(&self, cx: &Cx<'_, First>, task: TaskId) -> CpuId {
        let cpus = cx.topology().len();
        match self.affinity {
            Affinity::Cpu => cx.cpu,
            Affinity::Queue => cx.task(task).policy.resolve(cx.cpu, cpus),
            Affinity::None => CpuId(cx.rng().below(cpus) as u16),
        }
    }

    /// Returns what a task loses by leaving its candidate: nothing if the candidate was random.
    fn penalty(&self) -> Ns {
        if self.affinity == Affinity::None { Ns(0) } else { self.penalty }
    }
}

/// Returns a random CPU other than `first`, unless that is the only one.
fn another<T>(cx: &Cx<'_, T>, first: CpuId) -> CpuId {
    let cpus = cx.topology().len();
    let drawn = cx.rng().below((cpus - 1).max(1));
    CpuId(((first.index() + 1 + drawn) % cpus) as u16)
}

impl Policy for Hybrid {
    one_list!(First);

    const NAME: &'static str = "hybrid";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = true;
    const FIFO: bool = true;
    const USES_EXPECTED_WAIT: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Hybrid {
            affinity: affinity(params)?,
            choices: options::few(params, "choices", 2)?,
            penalty: params.ns("penalty", Ns(500))?,
            steal: options::few(params, "steal", 1)?,
            retry: params.ns_or_none("retry", None)?,
        })
    }

    fn task_init(&self, cx: &Cx<'_, First>, task: TaskId) {
        cx.task(task).policy.forget();
    }

    /// The other CPUs pay for the data they would have to fetch.
    #[inline]
    fn place(&self, cx: &Cx<'_, First>, task: TaskId, _: CpuId) -> CpuId {
        let (first, penalty) = (self.candidate(cx, task), self.penalty());
        let wait = cx.expected_wait(first);
        if wait <= penalty {
            return first;
        }
        let others = (0..self.choices).map(|_| another(cx, first));
        let waits = others.map(|cpu| (cx.expected_wait(cpu) + penalty, cpu));
        let best = waits.min_by_key(|&(wait, _)| wait);
        best.filter(|&(best, _)| best < wait).map_or(first, |(_, cpu)| cpu)
    }

    fn balance(&self, cx: &Cx<'_, First>, attempt: usize) -> Balance {
        match (per_cpu::victim(cx, attempt), self.retry) {
            (Balance::Nowhere, Some(time)) => Balance::Later(time),
            (answer, _) => answer,
        }
    }

    fn steal_limit(&self) -> usize {
        self.steal
    }

    fn steal(&self, cx: &Cx<'_, First>, _: CpuId, victim: &mut TaskList) -> Option<TaskId> {
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
        testkit::check::<Hybrid>("hybrid");
        testkit::check::<Hybrid>("hybrid:affinity=queue,choices=2,penalty=1us,steal=4");
        testkit::check::<Hybrid>("hybrid:affinity=none,choices=8");
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<Hybrid>();
    }

    #[test]
    fn a_task_stays_where_it_arrives_unless_another_cpu_is_sooner() {
        let harness = PolicyHarness::<Hybrid>::new("hybrid", 4);
        assert_eq!((0..100).map(|_| harness.place(2, 7, 0)).filter(|&cpu| cpu == 2).count(), 100);
    }

    /// Each task ahead counts as a microsecond if the hook does not measure.
    #[test]
    fn a_task_leaves_a_cpu_that_is_late_by_more_than_the_penalty() {
        let leaves = |text: &str| {
            let mut harness = PolicyHarness::<Hybrid>::new(text, 4);
            harness.set_idle(2, false);
            (0..1_000).filter(|_| harness.place(2, 7, 0) != 2).count()
        };
        assert_eq!((leaves("hybrid:penalty=900ns"), leaves("hybrid:penalty=1100ns")), (1_000, 0));
        // No CPU is warm: the busy one is drawn one time in four, and then left.
        assert_eq!(leaves("hybrid:penalty=1100ns,affinity=none"), 1_000);
    }

    #[test]
    fn the_others_are_drawn_from_the_rest_and_the_sooner_wins() {
        let mut harness = PolicyHarness::<Hybrid>::new("hybrid", 4);
        (0..4).for_each(|cpu| harness.set_idle(cpu, false));
        (0..2).for_each(|task| harness.enqueue(0, task, Enqueue::New));
        harness.enqueue(1, 2, Enqueue::New);
        let mut counts = [0; 4];
        (0..9_000).for_each(|_| counts[usize::from(harness.place(0, 7, 0))] += 1);
        // Of CPUs 1 (two tasks), 2 and 3 (one each), two draws find only CPU 1 one time in nine.
        assert_eq!(counts[0], 0);
        assert!((800..1_200).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn a_lone_cpu_keeps_all() {
        let mut harness = PolicyHarness::<Hybrid>::new("hybrid:penalty=1ns", 1);
        harness.set_idle(0, false);
        assert_eq!(harness.place(0, 7, 0), 0);
    }

    #[test]
    fn a_cpu_without_work_takes_the_oldest_of_another() {
        let mut harness = PolicyHarness::<Hybrid>::new("hybrid:retry=100us", 2);
        assert_eq!(harness.balance(1, 0), Balance::Later(Ns::from_us(100)));
        harness.enqueue(0, 5, Enqueue::New);
        harness.enqueue(0, 6, Enqueue::New);
        assert_eq!(harness.balance(1, 0), Balance::From(CpuId(0)));
        assert_eq!(harness.steal(1, 0), Some(5));
    }
}
