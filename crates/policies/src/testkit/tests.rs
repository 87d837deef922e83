//! The kit can fail: it finds every violation in a policy that commits it, and none in one that does
//! not.

use super::*;
use core::cell::Cell;
use heddle_core::driver::Rule;
use heddle_core::{Balance, Resched, TaskId, TaskList};
use heddle_core::{CpuId, Cx, Dispatch, Enqueue, Model, Ns, ParamError, Params};
use std::{assert, assert_eq, assert_ne, matches};

/// The fault of a [`Broken`] policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// None: a plain round robin with stealing.
    None,
    /// A task whose commit failed is forgotten.
    Forgets,
    /// A task that yields is forgotten, but counted.
    Hides,
    /// A task that is preempted is queued twice.
    QueuesTwice,
    /// The task that was proposed last is proposed again.
    Repeats,
    /// The youngest task goes first.
    Unfair,
    /// Idle CPUs are left idle.
    NeverSteals,
    /// Steals from itself.
    StealsFromItself,
    /// Looks for a victim forever.
    SeeksForEver,
    AsksAtOnce,
    /// Puts tasks on a CPU that does not exist.
    Misplaces,
    /// Preempts at half of its quantum.
    Hasty,
    /// Preempts although it has no quantum.
    Denies,
    /// Asks to be asked again at once.
    Spins,
    /// Asks to be asked again forever.
    Dithers,
    /// Hands two tasks to one CPU.
    Overloads,
}

const QUANTUM: Ns = Ns::from_us(10);

struct Broken<const CENTRAL: bool, const CONSERVES: bool = true>(Fault);

#[derive(Default)]
struct Queue {
    list: TaskList,
    hidden: usize,
    last: Option<TaskId>,
}

impl<const CENTRAL: bool, const CONSERVES: bool> Broken<CENTRAL, CONSERVES> {
    fn is(&self, fault: Fault) -> bool {
        self.0 == fault
    }
}

impl<const CENTRAL: bool, const CONSERVES: bool> Policy for Broken<CENTRAL, CONSERVES> {
    type Task = ();
    type Queue = Queue;

    const NAME: &'static str = "broken";
    const MODEL: Model = if CENTRAL { Model::Central } else { Model::PerCpu };
    const WORK_CONSERVING: bool = CONSERVES;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(Broken(Fault::None))
    }

    fn queue(&self) -> Queue {
        Queue::default()
    }

    fn len(&self, queue: &Queue) -> usize {
        queue.list.len() + queue.hidden
    }

    fn quantum(&self) -> Option<Ns> {
        Some(QUANTUM).filter(|_| !self.is(Fault::Denies))
    }

    fn enqueue(&self, cx: &Cx<'_, ()>, queue: &mut Queue, task: TaskId, why: Enqueue) {
        match why {
            Enqueue::CommitFailed if self.is(Fault::Forgets) => return,
            Enqueue::Yield if self.is(Fault::Hides) => queue.hidden += 1,
            _ => queue.list.push_back(cx.tasks, task),
        }
        if why == Enqueue::Preempted && self.is(Fault::QueuesTwice) {
            queue.list.push_back(cx.tasks, task);
        }
    }

    fn dequeue(&self, cx: &Cx<'_, ()>, queue: &mut Queue) -> Option<TaskId> {
        let task = match self.0 {
            Fault::Unfair => queue.list.pop_back(cx.tasks),
            _ => queue.list.pop_front(cx.tasks),
        }?;
        // Replaces another, so that the length is still right.
        let again =
            queue.last.filter(|&last| self.is(Fault::Repeats) && !cx.task(last).is_queued());
        queue.last = Some(task);
        Some(again.unwrap_or(task))
    }

    fn place(&self, _: &Cx<'_, ()>, _: TaskId, home: CpuId) -> CpuId {
        if self.is(Fault::Misplaces) { CpuId(77) } else { home }
    }

    fn tick(&self, _: &Cx<'_, ()>, _: &mut Queue, _: TaskId, ran: Ns) -> Resched {
        match self.0 {
            Fault::Hasty if ran >= QUANTUM / 2 => Resched::Now,
            Fault::Spins => Resched::After(Ns::ZERO),
            Fault::Dithers => Resched::After(Ns(1)),
            _ => crate::per_cpu::after(QUANTUM, ran),
        }
    }

    fn balance(&self, cx: &Cx<'_, ()>, attempt: usize) -> Balance {
        match self.0 {
            Fault::NeverSteals => Balance::Nowhere,
            Fault::StealsFromItself => Balance::From(cx.cpu),
            Fault::SeeksForEver => match (cx.cpu.index() + 1) % cx.topology().len() {
                next if next == cx.cpu.index() => Balance::Nowhere,
                next => Balance::From(CpuId(next as u16)),
            },
            Fault::AsksAtOnce => Balance::Later(Ns::ZERO),
            _ => crate::per_cpu::victim(cx, attempt),
        }
    }

    fn steal(&self, cx: &Cx<'_, ()>, _: CpuId, victim: &mut Queue) -> Option<TaskId> {
        victim.list.pop_front(cx.tasks)
    }

    fn poll(&self, cx: &Cx<'_, ()>, queue: &mut Queue, out: &mut dyn Dispatch) {
        for cpu in out.idle().iter() {
            let Some(task) = queue.list.pop_front(cx.tasks) else { break };
            out.assign(cpu, task);
            if self.is(Fault::Overloads)
                && let Some(second) = queue.list.pop_front(cx.tasks)
            {
                out.assign(cpu, second);
            }
        }
    }
}

fn found(fault: Fault) -> Option<Violation> {
    violation(|| Broken::<false>(fault), Promises::default())
}

#[test]
fn a_sound_policy_passes() {
    assert_eq!(found(Fault::None), None);
}

#[test]
fn a_forgotten_task_is_missed() {
    assert!(matches!(found(Fault::Forgets), Some(Violation::Length { says: 0, waiting: 1 })));
}

#[test]
fn a_task_that_is_counted_but_not_proposed_is_missed() {
    // An idle CPU reveals it if the policy claims to be work conserving, else the end of the run does.
    assert!(matches!(found(Fault::Hides), Some(Violation::Idle(_))));
    let modest = || Broken::<false, false>(Fault::Hides);
    let lost = violation(modest, Promises { fair: false });
    assert!(matches!(lost, Some(Violation::Lost(_))), "{lost:?}");
}

#[test]
fn a_task_queued_twice_is_noticed() {
    let Some(Violation::Panic(message)) = found(Fault::QueuesTwice) else { panic!("not found") };
    assert!(message.contains("at most one queue"), "{message}");
}

#[test]
fn a_task_proposed_twice_is_noticed() {
    let twice = found(Fault::Repeats);
    assert!(matches!(twice, Some(Violation::Broke(Rule::NotWaiting(_)))), "{twice:?}");
}

#[test]
fn starvation_is_noticed_unless_the_policy_owns_up_to_it() {
    assert!(matches!(found(Fault::Unfair), Some(Violation::Starved(_))));
    let unfair = violation(|| Broken::<false>(Fault::Unfair), Promises { fair: false });
    assert_eq!(unfair, None);
}

#[test]
fn an_idle_cpu_is_noticed_if_none_should_be() {
    assert!(matches!(found(Fault::NeverSteals), Some(Violation::Idle(_))));
    let modest = || Broken::<false, false>(Fault::NeverSteals);
    assert_eq!(violation(modest, Promises::default()), None);
}

#[test]
fn a_wrong_cpu_is_noticed() {
    let own = found(Fault::StealsFromItself);
    assert!(matches!(own, Some(Violation::Broke(Rule::NoVictim(_)))), "{own:?}");
    let placed = Rule::NoSuchCpu { call: "place", cpu: CpuId(77) };
    assert_eq!(found(Fault::Misplaces), Some(Violation::Broke(placed)));
}

#[test]
fn an_endless_search_is_noticed() {
    assert_eq!(found(Fault::SeeksForEver), Some(Violation::EndlessBalance));
    assert_eq!(found(Fault::AsksAtOnce), Some(Violation::Broke(Rule::NoDelay)));
}

#[test]
fn wrong_ticks_are_noticed() {
    let early = found(Fault::Hasty);
    assert!(matches!(early, Some(Violation::EarlyPreemption { quantum: Some(QUANTUM), .. })));
    let denied = found(Fault::Denies);
    assert!(matches!(denied, Some(Violation::EarlyPreemption { quantum: None, .. })));
    assert_eq!(found(Fault::Spins), Some(Violation::Broke(Rule::NoProgress)));
    assert_eq!(found(Fault::Dithers), Some(Violation::Undecided));
}

#[test]
fn a_dispatcher_is_watched_too() {
    let central = |fault| violation(|| Broken::<true>(fault), Promises::default());
    assert_eq!(central(Fault::None), None);
    assert!(matches!(central(Fault::Overloads), Some(Violation::Broke(Rule::BusyCpu(_)))));
}

/// A queue that claims to be first in, first out, and returns the newest task; or one that uses
/// expected waits without declaring it.
struct MisreportingPolicy<const FIFO: bool>;

impl<const FIFO: bool> Policy for MisreportingPolicy<FIFO> {
    type Task = ();
    type Queue = TaskList;

    const NAME: &'static str = "misreporting";
    const MODEL: Model = Model::PerCpu;
    const WORK_CONSERVING: bool = false;
    const FIFO: bool = FIFO;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(MisreportingPolicy)
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
        if FIFO { queue.pop_back(cx.tasks) } else { queue.pop_front(cx.tasks) }
    }

    fn place(&self, cx: &Cx<'_, ()>, _: TaskId, home: CpuId) -> CpuId {
        if !FIFO {
            cx.expected_wait(home);
        }
        home
    }
}

#[test]
fn false_claims_are_noticed() {
    let order = violation(|| MisreportingPolicy::<true>, Promises { fair: false });
    assert!(matches!(order, Some(Violation::NotFifo(_))), "{order:?}");
    assert_eq!(
        violation(|| MisreportingPolicy::<false>, Promises::default()),
        Some(Violation::Undeclared)
    );
}

/// Publishes the newest task as the next and serves the oldest.
struct MispublishingPolicy;

impl Policy for MispublishingPolicy {
    type Task = ();
    type Queue = TaskList;

    const NAME: &'static str = "mispublishing";
    const MODEL: Model = Model::Central;
    const WORK_CONSERVING: bool = true;
    const PUBLISHES: bool = true;

    fn new<'a>(_: &mut Params<'a>) -> Result<Self, ParamError<'a>> {
        Ok(MispublishingPolicy)
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

    fn remove(&self, cx: &Cx<'_, ()>, queue: &mut TaskList, task: TaskId) -> bool {
        queue.remove(cx.tasks, task);
        true
    }

    fn upcoming(&self, cx: &Cx<'_, ()>, queue: &TaskList, each: &mut dyn FnMut(TaskId) -> bool) {
        if let Some(newest) = queue.iter(cx.tasks).last() {
            each(newest);
        }
    }
}

#[test]
fn what_is_published_is_what_comes_next() {
    let order = violation(|| MispublishingPolicy, Promises::default());
    assert!(matches!(order, Some(Violation::NotAsPublished(_))), "{order:?}");
}

#[test]
fn the_same_event_sequence_gives_the_same_verdict() {
    let runs = Cell::new(0);
    let count = || {
        runs.set(runs.get() + 1);
        Broken::<false>(Fault::Unfair)
    };
    let first = (violation(count, Promises::default()), runs.take());
    assert_eq!(first, (violation(count, Promises::default()), runs.take()));
    assert_ne!(first.1, 0);
}

#[test]
fn parameters_that_differ_from_their_description_are_noticed() {
    let info = *crate::find("round-robin").unwrap();
    let wrong = |params| {
        let info = crate::Info { params, ..info };
        let check = || check_params_of::<crate::RoundRobin>(&info);
        *std::panic::catch_unwind(check).unwrap_err().downcast::<std::string::String>().unwrap()
    };
    const SOUND: crate::ParamInfo =
        crate::ParamInfo { key: "quantum", default: "100us", example: "50us", meaning: "" };
    let default = wrong(&[crate::ParamInfo { default: "1ms", ..SOUND }]);
    assert!(default.contains("`1ms` is not the default"), "{default}");
    let same = wrong(&[crate::ParamInfo { example: "100us", ..SOUND }]);
    assert!(same.contains("makes no difference"), "{same}");
    let missing = wrong(&[]);
    assert!(missing.contains("no parameter `no-such`; there are: quantum"), "{missing}");
    let extra = wrong(&[SOUND, crate::ParamInfo { key: "long", ..SOUND }]);
    assert!(extra.contains("no parameter `long`"), "{extra}");
}
