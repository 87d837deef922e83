//! The policy and its lanes (SKQ's kevqs), behind one door that knows no type.

use heddle_core::{
    Balance, Class, CpuId, Cx, Enqueue, Host, Model, Ns, Policy, Rng, TaskAttrs, TaskId, TaskSlot,
};
use heddle_policies::{PolicyError, Visitor};
use heddle_sys::sync::atomic::{AtomicU32, Ordering::Relaxed};
#[cfg(loom)]
use loom::sync::Mutex;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::Mutex;

/// From where a question is asked.
pub(crate) struct At<'a> {
    pub lane: usize,
    pub host: &'a dyn Host,
    pub rng: &'a Rng,
}

/// An event on its way into a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub event: u32,
    pub high: bool,
}

/// The lanes are those of an earlier roster: ask the newer one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed;

/// How much a thread takes from its lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    /// Events in all.
    pub all: usize,
    /// How many of them may be of high priority.
    pub high: usize,
}

/// What came of looking into other lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stolen {
    /// This many events.
    Some(usize),
    /// Nothing; look again after this long.
    Later(Ns),
    /// Nothing.
    Nothing,
}

/// What threads have to know of a policy at every event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Lanes are first in, first out, and remember nothing.
    pub is_fifo: bool,
    /// A thread without work may take what waits for another one.
    pub is_shared: bool,
    /// There are several lanes to put an event in.
    pub has_choice: bool,
}

/// Policies that count what runs on each CPU and must be told when it ends. A thread that handles a batch says that of none by itself.
pub(crate) const COUNTS: &[&str] = &["darc", "jbsq"];

/// Policies whose queues hand out what came first, whatever it is, and remember nothing of what has passed.
const FIFO: &[&str] = &[
    "best-of-two",
    "cpu-affinity",
    "fifo",
    "hybrid",
    "locality",
    "queue-affinity",
    "work-stealing",
];

/// A policy over a number of lanes.
pub(crate) trait Schedule: Send + Sync {
    /// What sort of policy it is.
    fn kind(&self) -> Kind;
    /// Beside the home of an event, how many other threads may take it when it happens.
    fn peers(&self) -> usize;
    /// How many events wait in `lane`.
    fn waiting(&self, lane: usize) -> usize;
    /// A new event is in the slot.
    fn begin(&self, at: &At<'_>, event: u32, class: Class);
    /// In which lane an event goes that happened at `at`.
    fn place(&self, at: &At<'_>, event: u32, home: CpuId) -> usize;
    fn enqueue(
        &self,
        at: &At<'_>,
        lane: usize,
        entries: &[Entry],
        why: Enqueue,
    ) -> Result<(), Closed>;
    /// Takes what `at.lane` shall handle next, high priority first.
    fn take(&self, at: &At<'_>, quota: Quota, out: &mut Vec<u32>);
    /// Takes from other lanes for `at.lane`.
    fn steal(&self, at: &At<'_>, out: &mut Vec<u32>) -> Stolen;
    /// Empties all lanes and ends them; who comes from now on gets [`Closed`].
    fn close(&self, at: &At<'_>) -> Vec<Entry>;
    /// The same policy, with what it knows of events, over another number of lanes.
    fn regroup(&self, lanes: usize) -> Box<dyn Schedule>;
}

/// Makes the schedule that `text` chooses.
///
/// # Errors
/// As [`heddle_policies::with_policy`]; the name of a policy that preempts, or is one of [`COUNTS`].
pub(crate) fn make(
    text: &str,
    capacity: usize,
    lanes: usize,
) -> Result<Result<Box<dyn Schedule>, &'static str>, PolicyError> {
    heddle_policies::with_policy(text, Make { capacity, lanes })
}

struct Make {
    capacity: usize,
    lanes: usize,
}

impl Visitor for Make {
    type Out = Result<Box<dyn Schedule>, &'static str>;
    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        if policy.quantum().is_some() || P::PREEMPTS || COUNTS.contains(&P::NAME) {
            return Err(P::NAME);
        }
        let tasks = (0..self.capacity).map(|_| TaskSlot::default()).collect();
        Ok(Box::new(Lanes::new(Arc::new(Shared { policy, tasks }), self.lanes)))
    }
}

/// What survives a change of lanes.
struct Shared<P: Policy> {
    policy: P,
    tasks: Box<[TaskSlot<P::Task>]>,
}

struct Lane<P: Policy> {
    normal: P::Queue,
    high: P::Queue,
    closed: bool,
}

/// A lane's lock, and how many wait behind it for those who do not hold it.
#[repr(align(128))]
struct Locked<P: Policy> {
    lane: Mutex<Lane<P>>,
    waiting: AtomicU32,
}

struct Lanes<P: Policy> {
    shared: Arc<Shared<P>>,
    lanes: Box<[Locked<P>]>,
}

impl<P: Policy> Lanes<P> {
    fn new(shared: Arc<Shared<P>>, lanes: usize) -> Lanes<P> {
        let queues = if P::MODEL == Model::Central { 1 } else { lanes.max(1) };
        let queue = || shared.policy.queue();
        let lane = || Lane { normal: queue(), high: queue(), closed: false };
        let locked = |_| Locked { lane: Mutex::new(lane()), waiting: AtomicU32::new(0) };
        let lanes = (0..queues).map(locked).collect();
        Lanes { shared, lanes }
    }

    fn of(&self, lane: usize) -> &Locked<P> {
        &self.lanes[if P::MODEL == Model::Central { 0 } else { lane }]
    }

    fn cx<'a>(&'a self, at: &'a At<'_>, lane: usize) -> Cx<'a, P::Task> {
        Cx::new(CpuId(lane as u16), &self.shared.tasks, at.host, at.rng)
    }

    /// Publishes the length of a lane that the caller has locked.
    fn count(&self, locked: &Locked<P>, lane: &Lane<P>) {
        let policy = &self.shared.policy;
        let waiting = policy.len(&lane.normal) + policy.len(&lane.high);
        locked.waiting.store(waiting as u32, Relaxed);
    }

    /// Goes through the lanes that the policy names; whether one of them was in use and left alone.
    fn search(&self, at: &At<'_>, is_patient: bool, out: &mut Vec<u32>) -> (Stolen, bool) {
        let mut was_busy = false;
        for attempt in 0.. {
            match self.shared.policy.balance(&self.cx(at, at.lane), attempt) {
                Balance::From(victim) => match self.steal_from(at, victim, is_patient, out) {
                    None => was_busy = true,
                    Some(0) => {}
                    Some(n) => return (Stolen::Some(n), was_busy),
                },
                Balance::Later(time) => return (Stolen::Later(time), was_busy),
                Balance::Nowhere => break,
            }
        }
        (Stolen::Nothing, was_busy)
    }

    /// How many events it were; `None` if the lane is in use and the caller has no patience.
    fn steal_from(
        &self,
        at: &At<'_>,
        victim: CpuId,
        is_patient: bool,
        out: &mut Vec<u32>,
    ) -> Option<usize> {
        let locked = self.of(victim.index());
        let mut guard = match is_patient {
            true => locked.lane.lock().unwrap(),
            false => locked.lane.try_lock().ok()?,
        };
        let lane = &mut *guard;
        let (cx, before) = (self.cx(at, at.lane), out.len());
        for queue in [&mut lane.high, &mut lane.normal] {
            while out.len() - before < self.shared.policy.steal_limit() {
                let Some(task) = self.shared.policy.steal(&cx, victim, queue) else { break };
                out.push(task.0);
            }
        }
        self.count(locked, lane);
        Some(out.len() - before)
    }
}

impl<P: Policy> Schedule for Lanes<P> {
    fn kind(&self) -> Kind {
        let is_central = P::MODEL == Model::Central;
        Kind {
            is_fifo: FIFO.contains(&P::NAME),
            is_shared: is_central || P::BALANCES && self.lanes.len() > 1,
            has_choice: self.lanes.len() > 1,
        }
    }

    fn peers(&self) -> usize {
        self.shared.policy.peers()
    }

    fn waiting(&self, lane: usize) -> usize {
        self.of(lane).waiting.load(Relaxed) as usize
    }

    fn begin(&self, at: &At<'_>, event: u32, class: Class) {
        let task = &self.shared.tasks[event as usize];
        task.set_attrs(TaskAttrs { class, ..TaskAttrs::default() });
        self.shared.policy.task_init(&self.cx(at, at.lane), TaskId(event));
    }

    fn place(&self, at: &At<'_>, event: u32, home: CpuId) -> usize {
        if self.lanes.len() == 1 {
            return 0;
        }
        self.shared.policy.place(&self.cx(at, at.lane), TaskId(event), home).index()
    }

    fn enqueue(
        &self,
        at: &At<'_>,
        lane: usize,
        entries: &[Entry],
        why: Enqueue,
    ) -> Result<(), Closed> {
        let locked = self.of(lane);
        let (cx, mut guard) = (self.cx(at, lane), locked.lane.lock().unwrap());
        let lane = &mut *guard;
        if lane.closed {
            return Err(Closed);
        }
        for &Entry { event, high } in entries {
            let queue = if high { &mut lane.high } else { &mut lane.normal };
            self.shared.policy.enqueue(&cx, queue, TaskId(event), why);
        }
        self.count(locked, lane);
        Ok(())
    }

    fn take(&self, at: &At<'_>, quota: Quota, out: &mut Vec<u32>) {
        let locked = self.of(at.lane);
        if locked.waiting.load(Relaxed) == 0 {
            return;
        }
        let (cx, mut guard) = (self.cx(at, at.lane), locked.lane.lock().unwrap());
        let lane = &mut *guard;
        for (queue, most) in [(&mut lane.high, quota.high), (&mut lane.normal, quota.all)] {
            while out.len() < most {
                let Some(task) = self.shared.policy.dequeue(&cx, queue) else { break };
                out.push(task.0);
            }
        }
        self.count(locked, lane);
    }

    fn steal(&self, at: &At<'_>, out: &mut Vec<u32>) -> Stolen {
        if self.lanes.len() == 1 {
            return Stolen::Nothing;
        }
        // A lane that is in use is left alone: its owner, or another thief, is at it (SKQ, section 4.2). But they may leave something
        // there, and look whether anybody idles before the caller is known to: who finds nothing else waits for them (E3).
        match self.search(at, false, out) {
            (Stolen::Some(n), _) => Stolen::Some(n),
            (_, true) => self.search(at, true, out).0,
            (nothing, false) => nothing,
        }
    }

    fn close(&self, at: &At<'_>) -> Vec<Entry> {
        let mut out = Vec::new();
        for (number, locked) in self.lanes.iter().enumerate() {
            let (cx, mut guard) = (self.cx(at, number), locked.lane.lock().unwrap());
            let lane = &mut *guard;
            lane.closed = true;
            for (queue, high) in [(&mut lane.high, true), (&mut lane.normal, false)] {
                let next = || self.shared.policy.dequeue(&cx, queue);
                out.extend(std::iter::from_fn(next).map(|task| Entry { event: task.0, high }));
            }
            self.count(locked, lane);
        }
        out
    }

    fn regroup(&self, lanes: usize) -> Box<dyn Schedule> {
        Box::new(Lanes::new(Arc::clone(&self.shared), lanes))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::roster::{Roster, View};

    /// The order in which a lane hands out events of mixed classes that come in order, some after others have left.
    fn order(text: &str) -> Vec<u32> {
        let schedule = make(text, 16, 1).unwrap().unwrap();
        let roster = Roster::new(0, Vec::new(), Vec::new(), make("fifo", 1, 0).unwrap().unwrap());
        let (view, rng) = (View(&roster), Rng::new(1));
        let at = At { lane: 0, host: &view, rng: &rng };
        let mut out = Vec::new();
        for event in 0..16 {
            schedule.begin(&at, event, if event % 3 == 0 { Class::BE } else { Class::LC });
            let entry = Entry { event, high: false };
            schedule.enqueue(&at, 0, &[entry], Enqueue::Wakeup).unwrap();
            if event % 4 == 3 {
                let before = out.len();
                schedule.take(&at, Quota { all: before + 2, high: before + 2 }, &mut out);
            }
        }
        schedule.take(&at, Quota { all: 16, high: 16 }, &mut out);
        out
    }

    #[test]
    fn policies_that_are_said_to_be_first_in_first_out_are() {
        for name in FIFO {
            assert_eq!(order(name), (0..16).collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn the_share_limits_high_priority_and_leaves_room_for_others() {
        let schedule = make("hybrid", 16, 1).unwrap().unwrap();
        let roster = Roster::new(0, Vec::new(), Vec::new(), make("fifo", 1, 0).unwrap().unwrap());
        let (view, rng) = (View(&roster), Rng::new(1));
        let at = At { lane: 0, host: &view, rng: &rng };
        let entries: Vec<_> = (0..8).map(|event| Entry { event, high: event >= 4 }).collect();
        schedule.enqueue(&at, 0, &entries, Enqueue::Wakeup).unwrap();
        let mut out = Vec::new();
        schedule.take(&at, Quota { all: 4, high: 2 }, &mut out);
        assert_eq!(out, [4, 5, 0, 1]);
        out.clear();
        schedule.take(&at, Quota { all: 4, high: 4 }, &mut out);
        assert_eq!(out, [6, 7, 2, 3]);
    }
}
