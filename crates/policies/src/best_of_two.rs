//! `best-of-two`: places each new or woken task on the less loaded of two CPUs picked at random.
//!
//! - **Optimises** balance with the least knowledge: no queue is searched and no CPU asks another, yet
//!   the longest queue of n CPUs is exponentially shorter than with one random choice. Suits systems
//!   where choosing is cheap and moving a queued task is not.
//! - **Parameters**: `choices` (default 2, at most 8): how many CPUs are compared, 1 is random
//!   placement; `by` (`wait` or `tasks`, default `wait`): compare the expected wait or the number of
//!   tasks; `quantum` (a time or `none`, default none).
//! - **Complexity**: constant time for every operation; placing reads two hints for each choice.
//! - **Source**: Mitzenmacher, The power of two choices in randomized load balancing, IEEE TPDS 12(10),
//!   2001; SKQ, section 4.2.

use crate::one_list::one_list;
use crate::{options, per_cpu};
use heddle_core::{CpuId, Cx, Model, Ns, ParamError, Params, Policy, Resched, TaskId, TaskList};

/// The power of two choices; see `docs/policies/best-of-two.md`.
#[derive(Clone, Debug)]
pub struct BestOfTwo {
    choices: usize,
    by: By,
    quantum: Option<Ns>,
}

/// The quantity by which CPUs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Wait,
    Tasks,
}

fn by<'a>(params: &mut Params<'a>) -> Result<By, ParamError<'a>> {
    match params.text("by") {
        None | Some("wait") => Ok(By::Wait),
        Some("tasks") => Ok(By::Tasks),
        Some(given) => Err(ParamError::Value { key: "by", given, allowed: "`wait` or `tasks`" }),
    }
}

impl By {
    fn load(self, cx: &Cx<'_, ()>, cpu: CpuId) -> u64 {
        match self {
            By::Wait => cx.expected_wait(cpu).0,
            By::Tasks => tasks(cx, cpu) as u64,
        }
    }
}

/// Returns how many tasks `cpu` has: the waiting ones and the running one.
fn tasks(cx: &Cx<'_, ()>, cpu: CpuId) -> usize {
    cx.queue_len(cpu) + usize::from(!cx.is_idle(cpu))
}

impl Policy for BestOfTwo {
    one_list!();

    const NAME: &'static str = "best-of-two";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = false;
    const FIFO: bool = true;
    const USES_EXPECTED_WAIT: bool = true;
    const BALANCES: bool = false;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        let choices = options::few(params, "choices", 2)?;
        let by = by(params)?;
        Ok(BestOfTwo { choices, by, quantum: params.ns_or_none("quantum", None)? })
    }

    fn quantum(&self) -> Option<Ns> {
        self.quantum
    }

    /// If the kernel chooses, it compares the same number of CPUs.
    fn peers(&self) -> usize {
        self.choices - 1
    }

    /// The choices are independent, as in Mitzenmacher's analysis: with few CPUs both may be the same.
    /// Ties go to the first.
    #[inline]
    fn place(&self, cx: &Cx<'_, ()>, _: TaskId, home: CpuId) -> CpuId {
        let cpus = cx.topology().len();
        let choices = (0..self.choices).map(|_| CpuId(cx.rng().below(cpus) as u16));
        choices.min_by_key(|&cpu| self.by.load(cx, cpu)).unwrap_or(home)
    }

    #[inline]
    fn tick(&self, _: &Cx<'_, ()>, _: &mut TaskList, _: TaskId, ran: Ns) -> Resched {
        per_cpu::after_or_never(self.quantum, ran)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness};
    use heddle_core::Enqueue;

    #[test]
    fn keeps_the_rules_of_every_policy() {
        testkit::check::<BestOfTwo>("best-of-two");
        testkit::check::<BestOfTwo>("best-of-two:choices=1,quantum=5us");
        testkit::check::<BestOfTwo>("best-of-two:by=tasks");
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<BestOfTwo>();
    }

    #[test]
    fn a_cpu_has_those_that_wait_and_the_one_that_runs() {
        let mut harness = PolicyHarness::<BestOfTwo>::new("best-of-two", 2);
        assert_eq!(tasks(&harness.cx(0), CpuId(1)), 0);
        harness.set_idle(1, false);
        harness.enqueue(1, 0, Enqueue::New);
        assert_eq!(tasks(&harness.cx(0), CpuId(1)), 2);
        harness.dequeue(1);
        assert_eq!(tasks(&harness.cx(0), CpuId(1)), 1);
    }

    /// Returns how many of 6,000 placements each of three CPUs gets if they have 2, 1 and 0 tasks.
    fn placements(text: &str) -> [u32; 3] {
        let mut harness = PolicyHarness::<BestOfTwo>::new(text, 3);
        harness.set_idle(0, false);
        harness.set_idle(1, false);
        harness.enqueue(0, 0, Enqueue::New);
        let mut counts = [0; 3];
        (0..6_000).for_each(|_| counts[usize::from(harness.place(0, 1, 0))] += 1);
        counts
    }

    /// The k-th least loaded of three is the least of d choices with probability ((4-k)/3)^d - ((3-k)/3)^d.
    #[test]
    fn the_less_loaded_wins_as_often_as_it_should() {
        let close = |counts: [u32; 3], expected: [f64; 3]| {
            let off = |(n, p): (&u32, f64)| (f64::from(*n) / 6_000.0 - p).abs();
            assert!(counts.iter().zip(expected).all(|pair| off(pair) < 0.03), "{counts:?}");
        };
        close(placements("best-of-two:choices=1"), [1.0 / 3.0; 3]);
        close(placements("best-of-two"), [1.0 / 9.0, 3.0 / 9.0, 5.0 / 9.0]);
        close(placements("best-of-two:choices=3"), [1.0 / 27.0, 7.0 / 27.0, 19.0 / 27.0]);
        // If the hook does not measure, the wait is a task count.
        assert_eq!(placements("best-of-two"), placements("best-of-two:by=tasks"));
    }

    const PLACES: [heddle_core::CpuInfo; 2] =
        [heddle_core::CpuInfo { os_id: 0, node: 0, llc: 0, core: 0 }; 2];

    /// A machine that knows that CPU 0's only task takes longer than CPU 1's two tasks.
    struct Measured;

    impl heddle_core::Host for Measured {
        fn now(&self) -> Ns {
            Ns::ZERO
        }
        fn topology(&self) -> heddle_core::Topology<'_> {
            heddle_core::Topology::new(&PLACES)
        }
        fn queue_len(&self, cpu: CpuId) -> usize {
            cpu.index()
        }
        fn is_idle(&self, _: CpuId) -> bool {
            false
        }
        fn any_idle(&self) -> bool {
            false
        }
        fn turns(&self, _: CpuId) -> &heddle_core::driver::TurnTime {
            unreachable!("this world computes its own waits")
        }
        fn expected_wait(&self, cpu: CpuId) -> Ns {
            if cpu.0 == 0 { Ns::from_ms(2) } else { Ns::from_us(20) }
        }
    }

    #[test]
    fn one_long_task_is_more_than_two_short_ones_by_wait_and_less_by_count() {
        let first = |text: &str| {
            let (policy, rng) =
                (crate::build::<BestOfTwo>(text).unwrap(), heddle_core::Rng::new(1));
            let cx = Cx::new(CpuId(0), &[], &Measured, &rng);
            (0..4_000).filter(|_| policy.place(&cx, TaskId(0), CpuId(0)) == CpuId(0)).count()
        };
        // The worse CPU is chosen only if both draws pick it: one in four.
        assert!((900..1_100).contains(&first("best-of-two")));
        assert!((2_900..3_100).contains(&first("best-of-two:by=tasks")));
    }

    #[test]
    fn idle_cpus_do_not_steal() {
        let mut harness = PolicyHarness::<BestOfTwo>::new("best-of-two", 2);
        harness.enqueue(0, 0, Enqueue::New);
        assert_eq!(harness.steal(1, 0), None);
        assert_eq!(harness.balance(1, 0), heddle_core::Balance::Nowhere);
    }
}
