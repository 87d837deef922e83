//! The driver's invariants, with a policy controlled by the test.

extern crate std;
use super::*;
use crate::{
    Balance, CpuInfo, CpuSet, Dispatch, Enqueue, Host, Ns, ParamError, Params, Resched, Rng,
    TaskList, TaskSlot, Topology,
};
use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::vec::Vec;

/// What the policy does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Repeats,
    Misplaces,
    StealsFromItself,
    NeverWaits,
    Spins,
    Overloads,
    Panics,
}

struct Scripted<const CENTRAL: bool>(Fault);

impl<const CENTRAL: bool> Policy for Scripted<CENTRAL> {
    type Task = ();
    type Queue = TaskList;

    const NAME: &'static str = "scripted";
    const MODEL: Model = if CENTRAL { Model::Central } else { Model::PerCpu };
    const WORK_CONSERVING: bool = true;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Scripted(Fault::None))
    }

    fn queue(&self) -> TaskList {
        TaskList::default()
    }

    fn len(&self, queue: &TaskList) -> usize {
        queue.len()
    }

    fn enqueue(&self, cx: &Cx<'_, ()>, queue: &mut TaskList, task: TaskId, _: Enqueue) {
        assert!(self.0 != Fault::Panics, "on purpose");
        queue.push_back(cx.tasks, task);
    }

    fn dequeue(&self, cx: &Cx<'_, ()>, queue: &mut TaskList) -> Option<TaskId> {
        match self.0 {
            Fault::Repeats => Some(TaskId(0)),
            _ => queue.pop_front(cx.tasks),
        }
    }

    fn place(&self, _: &Cx<'_, ()>, _: TaskId, home: CpuId) -> CpuId {
        if self.0 == Fault::Misplaces { CpuId(9) } else { home }
    }

    fn tick(&self, _: &Cx<'_, ()>, _: &mut TaskList, _: TaskId, _: Ns) -> Resched {
        if self.0 == Fault::Spins { Resched::After(Ns::ZERO) } else { Resched::Never }
    }

    fn balance(&self, cx: &Cx<'_, ()>, _: usize) -> Balance {
        match self.0 {
            Fault::StealsFromItself => Balance::From(cx.cpu),
            Fault::NeverWaits => Balance::Later(Ns::ZERO),
            _ => Balance::From(CpuId(1 - cx.cpu.0)),
        }
    }

    fn steal_limit(&self) -> usize {
        100
    }

    fn steal(&self, cx: &Cx<'_, ()>, _: CpuId, victim: &mut TaskList) -> Option<TaskId> {
        victim.pop_front(cx.tasks)
    }

    fn poll(&self, cx: &Cx<'_, ()>, queue: &mut TaskList, out: &mut dyn Dispatch) {
        while let Some(task) = queue.pop_front(cx.tasks) {
            out.assign(CpuId(0), task);
            if self.0 != Fault::Overloads {
                return;
            }
        }
    }
}

/// Two CPUs, and what the driver reported about them.
struct Machine {
    infos: [CpuInfo; 2],
    turns: TurnTime,
    slots: Vec<TaskSlot<()>>,
    rng: Rng,
    waiting: RefCell<Vec<TaskId>>,
    published: Cell<usize>,
    steps: RefCell<Vec<(CpuId, TaskId, EventKind)>>,
    panicked: Cell<Option<&'static str>>,
}

impl Host for Machine {
    fn now(&self) -> Ns {
        Ns::ZERO
    }

    fn topology(&self) -> Topology<'_> {
        Topology::new(&self.infos)
    }

    fn queue_len(&self, _: CpuId) -> usize {
        self.published.get()
    }

    fn is_idle(&self, _: CpuId) -> bool {
        false
    }

    fn any_idle(&self) -> bool {
        false
    }

    fn turns(&self, _: CpuId) -> &TurnTime {
        &self.turns
    }
}

impl Hook for &Machine {
    type Claimed = TaskId;

    fn publish(&self, len: usize) {
        self.published.set(len);
    }

    fn claim(&self, task: TaskId) -> Option<TaskId> {
        let at = self.waiting.borrow().iter().position(|&waiting| waiting == task)?;
        Some(self.waiting.borrow_mut().remove(at))
    }

    fn record(&self, cpu: CpuId, task: TaskId, what: EventKind) {
        self.steps.borrow_mut().push((cpu, task, what));
    }

    fn broke(&self, policy: &'static str, rule: Rule) -> ! {
        assert_eq!(policy, "scripted");
        resume_unwind(Box::new(rule))
    }

    fn panicked(&self, _: &'static str, call: &'static str) {
        self.panicked.set(Some(call));
    }
}

impl Machine {
    fn new() -> Machine {
        let info = |cpu| CpuInfo { os_id: u32::from(cpu), core: cpu, llc: 0, node: 0 };
        Machine {
            infos: [info(0), info(1)],
            turns: TurnTime::default(),
            slots: (0..32).map(|_| TaskSlot::default()).collect(),
            rng: Rng::new(1),
            waiting: RefCell::default(),
            published: Cell::new(0),
            steps: RefCell::default(),
            panicked: Cell::new(None),
        }
    }

    fn driver<'a, P: Policy<Task = ()>>(
        &'a self,
        policy: &'a P,
        cpu: u16,
    ) -> Driver<'a, P, &'a Machine> {
        Driver::new(policy, Cx::new(CpuId(cpu), &self.slots, self, &self.rng), self)
    }

    /// Puts tasks 0 to `n - 1` into `queue`.
    fn fill<P: Policy<Task = (), Queue = TaskList>>(
        &self,
        policy: &P,
        queue: &mut TaskList,
        n: u32,
    ) {
        for task in 0..n {
            self.waiting.borrow_mut().push(TaskId(task));
            self.driver(policy, 0).on(queue).enqueue(TaskId(task), Enqueue::New);
        }
    }
}

/// The queue of CPU 0, counting thefts.
struct Shelf<'a> {
    machine: &'a Machine,
    policy: &'a Scripted<false>,
    queue: TaskList,
    reached: usize,
}

impl<'a> Victims<Scripted<false>> for Shelf<'a> {
    type Hook = &'a Machine;

    fn reach<R>(
        &mut self,
        _: CpuId,
        take: impl FnOnce(&mut RunQueue<'_, Scripted<false>, &'a Machine>) -> R,
    ) -> Option<R> {
        self.reached += 1;
        Some(take(&mut self.machine.driver(self.policy, 1).on(&mut self.queue)))
    }
}

/// Returns the rule that `f` breaks.
fn broken(f: impl FnOnce()) -> Option<Rule> {
    let panic = catch_unwind(AssertUnwindSafe(f)).err()?;
    panic.downcast::<Rule>().ok().map(|rule| *rule)
}

#[test]
fn a_proposal_that_is_dropped_panics() {
    let (machine, policy) = (Machine::new(), Scripted::<false>(Fault::None));
    let mut queue = policy.queue();
    machine.fill(&policy, &mut queue, 1);
    let forgets = || drop(machine.driver(&policy, 0).on(&mut queue).dequeue());
    assert!(catch_unwind(AssertUnwindSafe(forgets)).is_err());
}

#[test]
fn a_proposal_is_committed_rejected_or_migrated_and_recorded() {
    let (machine, policy) = (Machine::new(), Scripted::<false>(Fault::None));
    let mut queue = policy.queue();
    machine.fill(&policy, &mut queue, 1);
    let first = machine.driver(&policy, 0).on(&mut queue).dequeue().unwrap();
    machine.waiting.borrow_mut().push(first.task());
    first.reject(&mut machine.driver(&policy, 0).on(&mut queue));
    assert_eq!((queue.len(), machine.published.get()), (1, 1));
    let again = machine.driver(&policy, 0).on(&mut queue).dequeue().unwrap();
    assert_eq!(again.commit(&&machine, CpuId(0)), TaskId(0));
    assert_eq!(machine.published.get(), 0);
    machine.driver(&policy, 0).on(&mut queue).exit(TaskId(0));
    let steps: Vec<_> = machine.steps.borrow().iter().map(|step| step.2).collect();
    assert_eq!(steps, [EventKind::New, EventKind::Start, EventKind::Exit]);
}

#[test]
fn each_broken_rule_is_named() {
    let broken_by = |fault| {
        let (machine, policy) = (Machine::new(), Scripted::<false>(fault));
        let mut queue = policy.queue();
        let mut shelf =
            Shelf { machine: &machine, policy: &policy, queue: policy.queue(), reached: 0 };
        broken(|| {
            machine.driver(&policy, 0).place(TaskId(0), CpuId(0));
            machine.driver(&policy, 0).on(&mut queue).tick(TaskId(0), Ns(1));
            let _ = machine.driver(&policy, 0).search(&mut shelf);
            drop(machine.driver(&policy, 0).on(&mut queue).dequeue());
        })
    };
    assert_eq!(broken_by(Fault::None), None);
    assert_eq!(broken_by(Fault::Repeats), Some(Rule::NotWaiting(TaskId(0))));
    let misplaced = Rule::NoSuchCpu { call: "place", cpu: CpuId(9) };
    assert_eq!(broken_by(Fault::Misplaces), Some(misplaced));
    assert_eq!(broken_by(Fault::StealsFromItself), Some(Rule::NoVictim(CpuId(0))));
    assert_eq!(broken_by(Fault::NeverWaits), Some(Rule::NoDelay));
    assert_eq!(broken_by(Fault::Spins), Some(Rule::NoProgress));
}

#[test]
fn a_dispatcher_gives_a_cpu_one_task_only() {
    let (machine, policy) = (Machine::new(), Scripted::<true>(Fault::Overloads));
    let mut queue = policy.queue();
    machine.fill(&policy, &mut queue, 2);
    let poll = || {
        let mut queue = machine.driver(&policy, 0).on(&mut queue);
        queue.poll(CpuSet::first(2), |_, task| {
            task.withdraw();
        });
    };
    assert_eq!(broken(poll), Some(Rule::BusyCpu(CpuId(0))));
}

#[test]
fn a_search_is_bounded_and_takes_no_more_than_the_limit() {
    let (machine, policy) = (Machine::new(), Scripted::<false>(Fault::None));
    let mut shelf = Shelf { machine: &machine, policy: &policy, queue: policy.queue(), reached: 0 };
    assert!(matches!(machine.driver(&policy, 1).search(&mut shelf), SearchResult::Nothing));
    assert_eq!(shelf.reached, 2 * ATTEMPTS);
    machine.fill(&policy, &mut shelf.queue, 20);
    let SearchResult::Tasks(stolen) = machine.driver(&policy, 1).search(&mut shelf) else {
        panic!()
    };
    let tasks: Vec<_> = stolen.into_iter().map(Proposal::withdraw).collect();
    assert_eq!(tasks, (0..STEAL_LIMIT as u32).map(TaskId).collect::<Vec<_>>());
    assert_eq!(machine.published.get(), 20 - STEAL_LIMIT);
}

#[test]
fn the_hook_hears_of_a_panic_and_of_the_method() {
    let (machine, policy) = (Machine::new(), Scripted::<false>(Fault::Panics));
    let mut queue = policy.queue();
    let enqueue = || machine.driver(&policy, 0).on(&mut queue).enqueue(TaskId(0), Enqueue::New);
    assert!(catch_unwind(AssertUnwindSafe(enqueue)).is_err());
    assert_eq!(machine.panicked.get(), Some("enqueue"));
}

#[test]
fn what_a_hook_lacks_is_said_in_words() {
    struct Preempts;
    impl Policy for Preempts {
        type Task = ();
        type Queue = ();
        const NAME: &'static str = "hasty";
        const MODEL: Model = Model::Central;
        const WORK_CONSERVING: bool = true;
        const PREEMPTS: bool = true;
        fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
            Ok(Preempts)
        }
        fn queue(&self) {}
        fn len(&self, (): &()) -> usize {
            0
        }
        fn enqueue(&self, _: &Cx<'_, ()>, (): &mut (), _: TaskId, _: Enqueue) {}
        fn dequeue(&self, _: &Cx<'_, ()>, (): &mut ()) -> Option<TaskId> {
            None
        }
    }
    assert_eq!(Abilities::ALL.suffice(&Preempts), Ok(()));
    let patient = Abilities { preemption: Err("nothing is interrupted here"), ..Abilities::ALL };
    let lacks = patient.suffice(&Preempts).unwrap_err();
    let text = std::format!("{lacks}");
    assert_eq!(text, "policy `hasty` preempts running tasks, but nothing is interrupted here");
}
