//! Policies that break a rule: the process ends at once and says which policy broke which rule, instead of hanging or
//! running a task twice. Each runs in a process of its own.

mod common;

use common::{child, cpus, is_child, text};
use heddle_core::{
    Balance, Class, CpuId, Cx, Dispatch, Enqueue, Model, Ns, ParamError, Params, Policy, Resched,
    TaskId, TaskList,
};
use heddle_rt::{Builder, RuntimeBuilder, sleep, yield_now};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What a policy does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Panics in the method of this name.
    Panics(&'static str),
    /// Places tasks on a CPU that does not exist.
    PlacesBeyond,
    /// Makes tasks of another queue make way.
    PreemptsBeyond,
    /// Proposes a task that sleeps.
    ProposesSleepers,
    /// Proposes a task that never was.
    ProposesNoTask,
    /// Looks for work in the queue that has none.
    BalancesItself,
    /// Looks for work on a CPU that does not exist.
    BalancesBeyond,
    /// Wants to be asked for work again after no time.
    BalancesAtOnce,
    /// Wants to be asked about a running task again after no time.
    TicksAtOnce,
    /// Forgets tasks that it was given.
    Loses,
}

use Fault::*;

/// Each fault, and what the process says of it.
const FAULTS: [(Fault, &str); 19] = [
    (Panics("task_init"), "panicked in `task_init`"),
    (Panics("task_exit"), "panicked in `task_exit`"),
    (Panics("enqueue"), "panicked in `enqueue`"),
    (Panics("dequeue"), "panicked in `dequeue`"),
    (Panics("block"), "panicked in `block`"),
    (Panics("tick"), "panicked in `tick`"),
    (Panics("len"), "panicked in `len`"),
    (Panics("place"), "panicked in `place`"),
    (Panics("balance"), "panicked in `balance`"),
    (Panics("steal"), "panicked in `steal`"),
    (PlacesBeyond, "`place` named cpu99"),
    (PreemptsBeyond, "`preempt` named cpu99"),
    (ProposesSleepers, "which is not in that run queue"),
    (ProposesNoTask, "which is not in that run queue"),
    (BalancesItself, "`balance` named cpu"),
    (BalancesBeyond, "`balance` named cpu99"),
    (BalancesAtOnce, "`balance` wants to be asked again after no time"),
    (TicksAtOnce, "`tick` wants to be asked again after no time"),
    (Loses, "was enqueued and never proposed"),
];

/// Faults that only show where there is another CPU.
const NEED_TWO_CPUS: [Fault; 7] = [
    Panics("place"),
    Panics("balance"),
    Panics("steal"),
    PlacesBeyond,
    BalancesItself,
    BalancesBeyond,
    BalancesAtOnce,
];

/// The number of no task.
const NO_TASK: u32 = 1 << 30;

/// First come, first served, on each CPU, with a quantum; except for its fault.
struct Faulty {
    fault: Fault,
    enqueued: AtomicU32,
    /// The last task that went to sleep, and was not proposed since.
    asleep: AtomicU32,
}

impl Faulty {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn enters(&self, method: &'static str) {
        assert!(!self.has(Panics(method)), "on purpose");
    }
}

impl Policy for Faulty {
    type Task = ();
    type Queue = TaskList;

    const NAME: &'static str = "faulty";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = true;
    const PREEMPTS: bool = true;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Faulty { fault: Loses, enqueued: AtomicU32::new(0), asleep: AtomicU32::new(NO_TASK) })
    }

    fn queue(&self) -> TaskList {
        TaskList::default()
    }

    fn quantum(&self) -> Option<Ns> {
        Some(Ns::from_us(100))
    }

    fn len(&self, queue: &TaskList) -> usize {
        self.enters("len");
        queue.len()
    }

    fn task_init(&self, _: &Cx<'_, ()>, _: TaskId) {
        self.enters("task_init");
    }

    fn task_exit(&self, _: &Cx<'_, ()>, _: &mut TaskList, _: TaskId) {
        self.enters("task_exit");
    }

    fn enqueue(&self, cx: &Cx<'_, ()>, queue: &mut TaskList, task: TaskId, _: Enqueue) {
        self.enters("enqueue");
        let nth = self.enqueued.fetch_add(1, Ordering::Relaxed);
        let is_work = cx.task(task).attrs().class == Class::BE;
        if !(self.has(Loses) && is_work && nth.is_multiple_of(3)) {
            queue.push_back(cx.tasks, task);
        }
    }

    fn dequeue(&self, cx: &Cx<'_, ()>, queue: &mut TaskList) -> Option<TaskId> {
        self.enters("dequeue");
        let sleeper = TaskId(self.asleep.swap(NO_TASK, Ordering::Relaxed));
        match self.fault {
            ProposesSleepers if sleeper.0 != NO_TASK => Some(sleeper),
            ProposesNoTask => Some(TaskId(NO_TASK)),
            _ => queue.pop_front(cx.tasks),
        }
    }

    fn block(&self, _: &Cx<'_, ()>, _: &mut TaskList, task: TaskId) {
        self.enters("block");
        self.asleep.store(task.0, Ordering::Relaxed);
    }

    fn place(&self, _: &Cx<'_, ()>, _: TaskId, home: CpuId) -> CpuId {
        self.enters("place");
        if self.has(PlacesBeyond) { CpuId(99) } else { home }
    }

    fn preempt(&self, _: &Cx<'_, ()>, _: &mut TaskList, _: TaskId) -> Option<CpuId> {
        self.has(PreemptsBeyond).then_some(CpuId(99))
    }

    fn tick(&self, _: &Cx<'_, ()>, _: &mut TaskList, _: TaskId, _: Ns) -> Resched {
        self.enters("tick");
        if self.has(TicksAtOnce) { Resched::After(Ns::ZERO) } else { Resched::Now }
    }

    fn balance(&self, cx: &Cx<'_, ()>, attempt: usize) -> Balance {
        self.enters("balance");
        match self.fault {
            BalancesItself => Balance::From(cx.cpu),
            BalancesBeyond => Balance::From(CpuId(99)),
            BalancesAtOnce => Balance::Later(Ns::ZERO),
            _ if attempt == 0 => Balance::From(CpuId(1 - cx.cpu.0)),
            _ => Balance::Nowhere,
        }
    }

    fn steal(&self, cx: &Cx<'_, ()>, _: CpuId, victim: &mut TaskList) -> Option<TaskId> {
        self.enters("steal");
        victim.pop_front(cx.tasks)
    }
}

/// Has tasks made, woken, preempted and stolen; then ends the runtime.
fn work(runtime: heddle_rt::Runtime) {
    give_up_after(Duration::from_secs(60));
    let task = || {
        yield_now();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(1) {}
        sleep(Duration::from_micros(50));
    };
    runtime.run(move || {
        // Not joined: a task that is lost would be waited for until the test gives up.
        (0..100).for_each(|_| drop(Builder::new().class(Class::BE).spawn(task).unwrap()));
    });
    // What a policy has lost shows once it counts nothing.
    let mut quiet = 0;
    while quiet < 50 {
        std::thread::sleep(Duration::from_millis(1));
        let waiting: usize = runtime.stats().queue_lengths.iter().sum();
        quiet = if waiting == 0 { quiet + 1 } else { 0 };
    }
    drop(runtime);
    // A worker may be behind, and end only now.
    sleep(Duration::from_secs(3600));
}

/// A fault that goes unnoticed may hang the process.
fn give_up_after(time: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(time);
        eprintln!("the fault was not noticed");
        std::process::exit(3)
    });
}

/// Runs `test` alone with `fault` in its environment; fails unless it aborts and says `expected` of `policy`.
fn expect(test: &str, fault: &str, policy: &str, expected: &str) {
    let output = child(test).env("FAULT", fault).env("RUST_BACKTRACE", "0").output().unwrap();
    let text = text(&output);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{fault}: {text}");
    let named = format!("heddle: policy `{policy}`");
    let reported = text.lines().any(|line| line.contains(&named) && line.contains(expected));
    assert!(reported, "{fault}: {text}");
}

#[test]
fn a_policy_that_breaks_a_rule_is_named_and_ends_the_process() {
    const TEST: &str = "a_policy_that_breaks_a_rule_is_named_and_ends_the_process";
    if is_child(TEST) {
        let chosen = std::env::var("FAULT").unwrap();
        let (fault, _) = FAULTS.into_iter().find(|(f, _)| format!("{f:?}") == chosen).unwrap();
        let policy = Faulty { fault, enqueued: AtomicU32::new(0), asleep: AtomicU32::new(NO_TASK) };
        return work(RuntimeBuilder::new().workers(cpus()).build_with(policy).unwrap());
    }
    for (fault, expected) in FAULTS {
        if cpus() > 1 || !NEED_TWO_CPUS.contains(&fault) {
            expect(TEST, &format!("{fault:?}"), "faulty", expected);
        }
    }
}

/// A central policy that hands tasks to a CPU that is not idle.
struct Overloads;

impl Policy for Overloads {
    type Task = ();
    type Queue = TaskList;

    const NAME: &'static str = "overloads";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = true;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Overloads)
    }

    fn queue(&self) -> TaskList {
        TaskList::default()
    }

    fn len(&self, queue: &TaskList) -> usize {
        queue.len()
    }

    fn enqueue(&self, cx: &Cx<'_, ()>, queue: &mut TaskList, task: TaskId, _: Enqueue) {
        queue.push_back(cx.tasks, task);
    }

    fn dequeue(&self, cx: &Cx<'_, ()>, queue: &mut TaskList) -> Option<TaskId> {
        queue.pop_front(cx.tasks)
    }

    fn poll(&self, cx: &Cx<'_, ()>, queue: &mut TaskList, out: &mut dyn Dispatch) {
        if let Some(task) = queue.pop_front(cx.tasks) {
            out.assign(CpuId(99), task);
        }
    }
}

#[test]
fn a_policy_that_hands_a_task_to_a_busy_cpu_is_named_and_ends_the_process() {
    const TEST: &str = "a_policy_that_hands_a_task_to_a_busy_cpu_is_named_and_ends_the_process";
    if is_child(TEST) {
        let cpu = heddle_sys::thread::affinity().unwrap()[0];
        return work(RuntimeBuilder::new().dispatcher(cpu).build_with(Overloads).unwrap());
    }
    if cpus() > 1 {
        expect(TEST, "assigns", "overloads", "which is not idle");
    }
}
