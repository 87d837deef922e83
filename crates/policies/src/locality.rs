//! `locality`: a task runs where its cache is warm, and waits a little rather than leave that cache.
//!
//! - **Optimises** throughput if a task's data lies in a last-level cache and fetching it into another
//!   one costs more than a short wait: many chiplets or several sockets, tasks that return to the same
//!   data.
//! - **Parameters**: `wait` (default 100us): how long a task waits for a CPU of its own cache before
//!   others may take it; `quantum` (a time or `none`, default none).
//! - **Complexity**: constant time to enqueue and dequeue; placing and stealing read a hint per CPU.
//! - **Source**: ghOSt, section 4.4 (Google Search): nearest idle CPU by cache, and the 100 us for
//!   which a task is kept pending rather than moved to another CCX.
//!
//! # How an idle CPU learns how long a task has waited
//!
//! Only the holder of the victim's lock can tell. So an idle CPU also visits victims of other caches,
//! and `steal` refuses tasks that have not waited long enough. If all refuse, the CPU rests for a
//! quarter of `wait` and looks again. Publishing the age of each queue's oldest task would save these
//! visits but cost a store in every enqueue and dequeue of every CPU, read only by idle ones; and the
//! policy would have to own that table, while policies own nothing outside queues and tasks. The price
//! is that a task may be taken a quarter of `wait` late.

use crate::per_cpu;
use heddle_core::{Balance, CpuId, Cx, Enqueue, Model, Ns, ParamError, Params};
use heddle_core::{Policy, Resched, TaskId, TaskList, Var};

/// How often an idle CPU looks at a waiting task of another cache.
const LOOKS: u64 = 4;

/// Places on the nearest idle CPU, with patience; see `docs/policies/locality.md`.
#[derive(Clone, Debug)]
pub struct Locality {
    wait: Ns,
    quantum: Option<Ns>,
}

/// When the task was enqueued.
#[derive(Debug, Default)]
pub struct Since(Var<Ns>);

fn share_cache<T>(cx: &Cx<'_, T>, a: CpuId, b: CpuId) -> bool {
    cx.topology().cpu(a).llc == cx.topology().cpu(b).llc
}

impl Policy for Locality {
    type Task = Since;
    type Queue = TaskList;

    const NAME: &'static str = "locality";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = false;
    const FIFO: bool = true;
    const PUBLISHES: bool = true;

    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        let wait = params.ns("wait", Ns::from_us(100))?;
        Ok(Locality { wait, quantum: params.ns_or_none("quantum", None)? })
    }

    fn queue(&self) -> TaskList {
        TaskList::default()
    }

    #[inline]
    fn len(&self, queue: &TaskList) -> usize {
        queue.len()
    }

    fn quantum(&self) -> Option<Ns> {
        self.quantum
    }

    #[inline]
    fn enqueue(&self, cx: &Cx<'_, Since>, queue: &mut TaskList, task: TaskId, _: Enqueue) {
        cx.task(task).policy.0.set(cx.now());
        queue.push_back(cx.tasks, task);
    }

    #[inline]
    fn dequeue(&self, cx: &Cx<'_, Since>, queue: &mut TaskList) -> Option<TaskId> {
        queue.pop_front(cx.tasks)
    }

    fn remove(&self, cx: &Cx<'_, Since>, queue: &mut TaskList, task: TaskId) -> bool {
        queue.remove(cx.tasks, task);
        true
    }

    fn upcoming(&self, cx: &Cx<'_, Since>, queue: &TaskList, each: &mut dyn FnMut(TaskId) -> bool) {
        queue.iter(cx.tasks).all(each);
    }

    /// The nearest idle CPU of the same cache, else home. If the nearest idle CPU has another cache,
    /// none of this cache is idle.
    #[inline]
    fn place(&self, cx: &Cx<'_, Since>, _: TaskId, home: CpuId) -> CpuId {
        cx.nearest_idle(home).filter(|&cpu| share_cache(cx, home, cpu)).unwrap_or(home)
    }

    #[inline]
    fn tick(&self, _: &Cx<'_, Since>, _: &mut TaskList, _: TaskId, ran: Ns) -> Resched {
        per_cpu::after_or_never(self.quantum, ran)
    }

    /// Near CPUs first; if all refuse and a task still seems to wait, again after a while.
    fn balance(&self, cx: &Cx<'_, Since>, attempt: usize) -> Balance {
        match per_cpu::victim(cx, attempt) {
            Balance::Nowhere if attempt > 0 && cx.nearest_waiting(cx.cpu, 0).is_some() => {
                Balance::Later((self.wait / LOOKS).max(Ns(1)))
            }
            answer => answer,
        }
    }

    /// Takes the oldest task if it belongs to this cache or has waited long enough.
    fn steal(&self, cx: &Cx<'_, Since>, from: CpuId, victim: &mut TaskList) -> Option<TaskId> {
        let since = cx.task(victim.front()?).policy.0.get();
        let may = share_cache(cx, from, cx.cpu) || cx.now() - since >= self.wait;
        may.then(|| victim.pop_front(cx.tasks)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{self, PolicyHarness};

    /// Eight CPUs in two caches: 0 to 3, 4 to 7. The CPUs in `busy` are busy.
    fn harness(busy: &[u16]) -> PolicyHarness<Locality> {
        let mut harness = PolicyHarness::new("locality", 8);
        busy.iter().for_each(|&cpu| harness.set_idle(cpu, false));
        harness
    }

    #[test]
    fn keeps_the_rules_of_every_policy() {
        testkit::check::<Locality>("locality:wait=50us");
        testkit::check::<Locality>("locality:wait=1ns,quantum=5us");
    }

    #[test]
    fn reads_its_parameters() {
        testkit::check_params::<Locality>();
    }

    #[test]
    fn a_task_goes_to_the_nearest_idle_cpu_of_its_cache_else_home() {
        assert_eq!(harness(&[]).place(7, 0, 0), 0);
        assert_eq!(harness(&[0]).place(7, 0, 0), 1);
        assert_eq!(harness(&[0, 1, 2]).place(7, 0, 0), 3);
        assert_eq!(harness(&[0, 1, 2, 3]).place(7, 0, 0), 0);
    }

    #[test]
    fn a_cpu_of_the_same_cache_takes_at_once() {
        let mut harness = harness(&[0]);
        harness.enqueue(0, 5, Enqueue::New);
        assert_eq!(harness.balance(3, 0), Balance::From(CpuId(0)));
        assert_eq!(harness.steal(3, 0), Some(5));
    }

    #[test]
    fn a_cpu_of_another_cache_waits_first() {
        let mut harness = harness(&[0]);
        harness.enqueue(0, 5, Enqueue::New);
        harness.set_now(Ns::from_us(99));
        assert_eq!(harness.balance(4, 0), Balance::From(CpuId(0)));
        assert_eq!(harness.steal(4, 0), None);
        assert_eq!(harness.balance(4, 1), Balance::From(CpuId(0)));
        assert_eq!(harness.balance(4, 2), Balance::Later(Ns::from_us(25)));
        harness.set_now(Ns::from_us(100));
        assert_eq!(harness.steal(4, 0), Some(5));
        assert_eq!(harness.balance(4, 2), Balance::Nowhere);
    }

    #[test]
    fn a_cpu_without_a_victim_does_not_wait() {
        let mut harness = harness(&[]);
        assert_eq!(harness.balance(4, 0), Balance::Nowhere);
        assert_eq!(harness.steal(4, 0), None);
    }

    #[test]
    fn the_wait_begins_anew_with_each_enqueue() {
        let mut harness = harness(&[0]);
        harness.enqueue(0, 5, Enqueue::New);
        harness.dequeue(0);
        harness.set_now(Ns::from_us(200));
        harness.enqueue(0, 5, Enqueue::Yield);
        assert_eq!(harness.steal(4, 0), None);
    }
}
