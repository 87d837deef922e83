//! `darc`: reserves CPUs for types of tasks by each type's demand, short types first.
//!
//! - **Optimises** the tail of short types without preemption: enough CPUs are kept free of long tasks
//!   that a short one finds a CPU that will soon be free. It leaves CPUs idle on purpose, for short
//!   tasks that may come.
//! - **Parameters**: `window` (default 4096): the number of completions after which the reservation is
//!   recomputed.
//! - **Complexity**: a step per type (16) to dequeue; sorts the types once per window. Reads the clock
//!   at each dequeue and when a task leaves its CPU.
//! - **Source**: Demoulin et al., When idling is ideal: optimizing tail-latency for heavy-tailed
//!   datacenter workloads with Perséphone, SOSP 2021 (DARC: dynamic, application-aware reserved cores).
//!
//! # Invariants
//!
//! - **I1** The last CPU may run every type, so no task waits forever for lack of a CPU that may run
//!   it.
//! - **I2** Of two types, the CPUs that may run the longer one may also run the shorter one.

use heddle_core::{CpuId, Cx, Enqueue, Model, Ns, ParamError, Params, Policy};
use heddle_core::{TaskId, TaskList, Var};

/// The number of types; higher classes share the last.
const TYPES: usize = 16;

/// A new service time enters the mean of its type with a weight of one in `MEMORY`.
const MEMORY: u64 = 16;

/// Reserved CPUs for short types; see `docs/policies/darc.md`.
#[derive(Clone, Debug)]
pub struct Darc {
    window: u32,
}

/// A type of tasks.
#[derive(Debug, Default)]
struct Type {
    waiting: TaskList,
    /// Moving average of the service time.
    mean: Ns,
    /// Completions in this window, half of those in the one before, and so on: rare types need more
    /// than one window.
    seen: u64,
    /// The first CPU that may run it; all later ones may too (I2).
    first: usize,
}

impl Type {
    /// The CPU time that the type used recently.
    fn demand(&self) -> u128 {
        u128::from(self.mean.0) * u128::from(self.seen)
    }

    fn complete(&mut self, service: Ns) {
        self.seen += 1;
        self.mean = match self.mean {
            Ns::ZERO => service,
            mean => mean - mean / MEMORY + service / MEMORY,
        };
    }
}

/// The types, and the order in which they are served.
#[derive(Debug)]
pub struct Queue {
    types: [Type; TYPES],
    /// Shortest first; until the first window ends, all tasks count as one type.
    order: [u8; TYPES],
    left: u32,
    is_measured: bool,
}

/// How long a task has run since it was created or woke, and when its current turn began.
#[derive(Debug, Default)]
pub struct Service {
    dequeued: Var<Ns>,
    used: Var<Ns>,
}

impl Service {
    fn charge(&self, cx: &Cx<'_, Service>) {
        self.used.set(self.used.get() + (cx.now() - self.dequeued.get()));
    }
}

fn type_of(cx: &Cx<'_, Service>, task: TaskId) -> usize {
    usize::from(cx.task(task).attrs().class.0).min(TYPES - 1)
}

impl Queue {
    /// Gives each recently seen type CPUs by its share of the demand, in the order of their means: at
    /// least one while there are CPUs left, and the longest type what remains. A type may also run on
    /// CPUs left over by the next shorter types.
    fn reserve(&mut self, cpus: usize) {
        let types = &mut self.types;
        let unknown = |kind: &Type| kind.mean == Ns::ZERO;
        self.order.sort_unstable_by_key(|&i| {
            let kind = &types[usize::from(i)];
            (unknown(kind), kind.mean, i)
        });
        let total = types.iter().map(Type::demand).sum::<u128>().max(1);
        let mut next = 0;
        for &i in &self.order {
            let kind = &mut types[usize::from(i)];
            kind.first = next.min(cpus - 1);
            let share = (kind.demand() * cpus as u128 + total / 2) / total;
            next += (share as usize).max(usize::from(kind.seen > 0));
            kind.seen /= 2;
        }
    }

    /// Takes a task of the shortest waiting type that may run on `cpu`.
    #[inline]
    fn take(&mut self, cx: &Cx<'_, Service>, cpu: CpuId) -> Option<TaskId> {
        let task = self.order.iter().find_map(|&i| {
            let kind = &mut self.types[usize::from(i)];
            let allowed = cpu.index() >= kind.first;
            allowed.then(|| kind.waiting.pop_front(cx.tasks)).flatten()
        })?;
        cx.task(task).policy.dequeued.set(cx.now());
        Some(task)
    }

    /// Records that `task` has done the work it was created or woken for.
    fn complete(&mut self, cx: &Cx<'_, Service>, task: TaskId, window: u32) {
        let service = &cx.task(task).policy;
        service.charge(cx);
        self.types[type_of(cx, task)].complete(service.used.get());
        self.left -= 1;
        if self.left == 0 {
            self.reserve(cx.topology().len());
            self.is_measured = true;
            self.left = window;
        }
    }
}

impl Policy for Darc {
    type Task = Service;
    type Queue = Queue;

    const NAME: &'static str = "darc";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = false;
    const COUNTS_RUNNING: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Darc { window: params.count("window", 4096)? })
    }

    fn queue(&self) -> Queue {
        Queue {
            types: Default::default(),
            order: core::array::from_fn(|i| i as u8),
            left: self.window,
            is_measured: false,
        }
    }

    #[inline]
    fn len(&self, queue: &Queue) -> usize {
        queue.types.iter().map(|kind| kind.waiting.len()).sum()
    }

    fn task_exit(&self, cx: &Cx<'_, Service>, queue: &mut Queue, task: TaskId) {
        queue.complete(cx, task, self.window);
    }

    #[inline]
    fn enqueue(&self, cx: &Cx<'_, Service>, queue: &mut Queue, task: TaskId, why: Enqueue) {
        match why {
            Enqueue::New | Enqueue::Wakeup => cx.task(task).policy.used.set(Ns::ZERO),
            Enqueue::Yield | Enqueue::Preempted => cx.task(task).policy.charge(cx),
            Enqueue::Migrated | Enqueue::CommitFailed => {}
        }
        let list = if queue.is_measured { type_of(cx, task) } else { 0 };
        queue.types[list].waiting.push_back(cx.tasks, task);
    }

    #[inline]
    fn dequeue(&self, cx: &Cx<'_, Service>, queue: &mut Queue) -> Option<TaskId> {
        queue.take(cx, cx.cpu)
    }

    fn block(&self, cx: &Cx<'_, Service>, queue: &mut Queue, task: TaskId) {
        queue.complete(cx, task, self.window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness, Promises};
    use heddle_core::{Class, TaskAttrs};

    const SHORT: u8 = 2;
    const LONG: u8 = 0;

    fn spawn(harness: &mut PolicyHarness<Darc>, task: u32, class: u8) {
        harness.init(task, TaskAttrs { class: Class(class), ..TaskAttrs::default() });
        harness.enqueue(0, task, Enqueue::New);
    }

    /// Lets a task of `class` arrive, run on the last CPU for `us`, and exit.
    fn serve(harness: &mut PolicyHarness<Darc>, class: u8, us: u64) {
        let last = (harness.cx(0).topology().len() - 1) as u16;
        spawn(harness, 15, class);
        assert_eq!(harness.dequeue(last), Some(15));
        let now = harness.cx(0).now();
        harness.set_now(now + Ns::from_us(us));
        harness.exit(last, 15);
    }

    /// Eight CPUs, after 10 short tasks of 1 us and 2 long ones of `long` us.
    fn measured(long: u64) -> PolicyHarness<Darc> {
        let mut harness = PolicyHarness::new("darc:window=12", 8);
        (0..10).for_each(|_| serve(&mut harness, SHORT, 1));
        (0..2).for_each(|_| serve(&mut harness, LONG, long));
        harness
    }

    /// Returns the first CPU that gets a long task.
    fn first_for_long(harness: &mut PolicyHarness<Darc>) -> Option<u16> {
        spawn(harness, 0, LONG);
        (0..8).find(|&cpu| harness.dequeue(cpu) == Some(0))
    }

    #[test]
    fn keeps_the_rules_of_every_policy_but_fairness() {
        for text in ["darc", "darc:window=1", "darc:window=5"] {
            let make = || crate::build(text).unwrap();
            testkit::check_with::<Darc>(make, Promises { fair: false });
        }
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<Darc>();
    }

    #[test]
    fn before_the_first_window_all_wait_in_one_queue() {
        let mut harness = PolicyHarness::<Darc>::new("darc", 2);
        [LONG, SHORT, LONG].into_iter().enumerate().for_each(|(i, class)| {
            spawn(&mut harness, i as u32, class);
        });
        assert_eq!((harness.dequeue(1), harness.drain(0)), (Some(0), [1, 2].into()));
    }

    #[test]
    fn cpus_are_reserved_by_demand_and_at_least_one_for_the_short() {
        assert_eq!(
            first_for_long(&mut measured(5)),
            Some(4),
            "half of the time is the short ones'"
        );
        assert_eq!(first_for_long(&mut measured(1000)), Some(1), "next to nothing is");
    }

    #[test]
    fn short_tasks_may_use_the_cpus_of_long_ones_and_go_first() {
        let mut harness = measured(5);
        spawn(&mut harness, 0, LONG);
        spawn(&mut harness, 1, SHORT);
        assert_eq!((harness.dequeue(7), harness.dequeue(7)), (Some(1), Some(0)));
    }

    #[test]
    fn an_unknown_type_waits_for_the_last_cpu() {
        let mut harness = measured(5);
        spawn(&mut harness, 0, 9);
        assert_eq!((harness.dequeue(6), harness.dequeue(7)), (None, Some(0)));
    }

    #[test]
    fn the_reservation_follows_the_load_and_forgets_in_the_course_of_windows() {
        let mut harness = measured(5);
        let windows = |harness: &mut PolicyHarness<Darc>, n, class, us| {
            (0..12 * n).for_each(|_| serve(harness, class, us));
        };
        windows(&mut harness, 1, LONG, 5);
        assert_eq!(first_for_long(&mut harness), Some(1), "short ones may come again");
        windows(&mut harness, 5, LONG, 5);
        assert_eq!(first_for_long(&mut harness), Some(0), "none did");
        windows(&mut harness, 6, SHORT, 1);
        assert_eq!(first_for_long(&mut harness), Some(7), "the last remains");
    }

    #[test]
    fn the_time_of_a_task_that_yields_adds_up() {
        let mut harness = PolicyHarness::<Darc>::new("darc:window=2", 8);
        spawn(&mut harness, 1, LONG);
        for _ in 0..10 {
            harness.dequeue(0);
            let now = harness.cx(0).now();
            harness.set_now(now + Ns::from_us(1));
            harness.enqueue(0, 1, Enqueue::Yield);
        }
        harness.dequeue(0);
        harness.block(0, 1);
        serve(&mut harness, SHORT, 2);
        assert_eq!(first_for_long(&mut harness), Some(1), "10 us against 2, which are the shorter");
    }
}
