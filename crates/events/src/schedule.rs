//! The policy and its lanes (SKQ's kevqs), behind one door that knows no type.

use heddle_core::driver::{
    Abilities, Driver, Found, Hook, Lacks, Proposal, Rule, RunQueue, Victims,
};
use heddle_core::{
    Class, CpuId, Cx, Enqueue, Host, Model, Ns, Policy, Rng, TaskAttrs, TaskId, TaskSlot,
};
use heddle_policies::{PolicyError, Visitor};
use heddle_sync::atomic::{AtomicU32, Ordering::Relaxed};
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

/// What a thread that handles events can do for a policy.
const ABILITIES: Abilities = Abilities {
    preemption: Err("a thread that handles an event is not interrupted"),
    ends: Err("threads take and release events in batches"),
};

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
/// As [`heddle_policies::with_policy`]; what a policy needs that threads with events cannot do.
pub(crate) fn make(
    text: &str,
    capacity: usize,
    lanes: usize,
) -> Result<Result<Box<dyn Schedule>, Lacks>, PolicyError> {
    heddle_policies::with_policy(text, Make { capacity, lanes })
}

struct Make {
    capacity: usize,
    lanes: usize,
}

impl Visitor for Make {
    type Out = Result<Box<dyn Schedule>, Lacks>;
    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        ABILITIES.suffice(&policy)?;
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

    /// A call from `at` about no lane's contents.
    fn driver<'a>(&'a self, at: &'a At<'_>) -> Driver<'a, P, Call<'a, P>> {
        let call = Call { shared: &self.shared, locked: self.of(at.lane), number: 0, others: 0 };
        Driver::new(&self.shared.policy, self.cx(at, at.lane), call)
    }

    /// One of the two queues of lane `number`, which the caller has locked, in a call for the thread of lane `by`.
    #[inline]
    fn on<'q, 'a: 'q>(
        &'a self,
        at: &'a At<'_>,
        by: usize,
        number: usize,
        lane: &'q mut Lane<P>,
        high: bool,
    ) -> RunQueue<'q, P, Call<'a, P>> {
        let (queue, other) = match high {
            true => (&mut lane.high, &lane.normal),
            false => (&mut lane.normal, &lane.high),
        };
        let others = self.shared.policy.len(other);
        let call = Call { shared: &self.shared, locked: self.of(number), number, others };
        Driver::new(&self.shared.policy, self.cx(at, by), call).on(queue)
    }
}

/// A lane as the hook of one call about one of its queues.
struct Call<'a, P: Policy> {
    shared: &'a Shared<P>,
    locked: &'a Locked<P>,
    number: usize,
    /// How many events wait in the lane's other queue.
    others: usize,
}

impl<P: Policy> Call<'_, P> {
    /// What is noted of an event that waits in this lane.
    #[inline]
    fn mark(&self) -> u64 {
        if P::MODEL == Model::Central { 1 } else { self.number as u64 + 1 }
    }
}

impl<P: Policy> Hook for Call<'_, P> {
    type Claimed = u32;

    #[inline]
    fn publish(&self, len: usize) {
        self.locked.waiting.store((len + self.others) as u32, Relaxed);
    }

    #[inline]
    fn claim(&self, task: TaskId) -> Option<u32> {
        let slot = self.shared.tasks.get(task.index())?;
        let waits = slot.host.get() == self.mark();
        slot.host.set(0);
        waits.then_some(task.0)
    }

    /// Aborts: to go on would handle an event twice, or never.
    fn broke(&self, policy: &'static str, rule: Rule) -> ! {
        heddle_sys::abort(format_args!("policy `{policy}`: {rule}; this is a fault in the policy"))
    }

    /// Aborts: the events of this lane would be lost with its lock.
    fn panicked(&self, policy: &'static str, call: &'static str) {
        heddle_sys::abort(format_args!(
            "policy `{policy}` panicked in `{call}`; this is a fault in the policy"
        ))
    }
}

/// The lanes of others, for a search of the thread of `at.lane`.
struct Others<'a, P: Policy> {
    lanes: &'a Lanes<P>,
    at: &'a At<'a>,
    /// Waits for lanes that are in use.
    is_patient: bool,
    /// One was in use and left alone.
    was_busy: bool,
}

impl<'a, P: Policy> Victims<P> for Others<'a, P> {
    type Hook = Call<'a, P>;

    fn reach<R>(
        &mut self,
        victim: CpuId,
        take: impl FnOnce(&mut RunQueue<'_, P, Call<'a, P>>) -> R,
    ) -> Option<R> {
        let (lanes, at, number) = (self.lanes, self.at, victim.index());
        let lane = &lanes.of(number).lane;
        let guard = if self.is_patient { lane.lock().ok() } else { lane.try_lock().ok() };
        let Some(mut guard) = guard else {
            self.was_busy = true;
            return None;
        };
        let high = lanes.shared.policy.len(&guard.high) > 0;
        Some(take(&mut lanes.on(at, at.lane, number, &mut guard, high)))
    }
}

impl<P: Policy> Schedule for Lanes<P> {
    fn kind(&self) -> Kind {
        let is_central = P::MODEL == Model::Central;
        Kind {
            is_fifo: P::FIFO,
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
        self.driver(at).init(TaskId(event));
    }

    fn place(&self, at: &At<'_>, event: u32, home: CpuId) -> usize {
        if self.lanes.len() == 1 {
            return 0;
        }
        self.driver(at).place(TaskId(event), home).index()
    }

    fn enqueue(
        &self,
        at: &At<'_>,
        lane: usize,
        entries: &[Entry],
        why: Enqueue,
    ) -> Result<(), Closed> {
        let mut guard = self.of(lane).lane.lock().unwrap();
        if guard.closed {
            return Err(Closed);
        }
        for &Entry { event, high } in entries {
            let mut queue = self.on(at, lane, lane, &mut guard, high);
            self.shared.tasks[event as usize].host.set(queue.hook().mark());
            queue.enqueue(TaskId(event), why);
        }
        Ok(())
    }

    fn take(&self, at: &At<'_>, quota: Quota, out: &mut Vec<u32>) {
        let locked = self.of(at.lane);
        if locked.waiting.load(Relaxed) == 0 {
            return;
        }
        let mut guard = locked.lane.lock().unwrap();
        for (high, most) in [(true, quota.high), (false, quota.all)] {
            let mut queue = self.on(at, at.lane, at.lane, &mut guard, high);
            while out.len() < most {
                let Some(event) = queue.dequeue() else { break };
                out.push(event.withdraw());
            }
        }
    }

    fn steal(&self, at: &At<'_>, out: &mut Vec<u32>) -> Stolen {
        if self.lanes.len() == 1 {
            return Stolen::Nothing;
        }
        // A lane that is in use is left alone: its owner, or another thief, is at it (SKQ, section 4.2). But they may leave something
        // there, and look whether anybody idles before the caller is known to: who finds nothing else waits for them (E3).
        let mut others = Others { lanes: self, at, is_patient: false, was_busy: false };
        let mut found = self.driver(at).search(&mut others);
        if others.was_busy && !matches!(found, Found::Tasks(_)) {
            others.is_patient = true;
            found = self.driver(at).search(&mut others);
        }
        match found {
            Found::Tasks(stolen) => {
                let n = stolen.len();
                out.extend(stolen.into_iter().map(Proposal::withdraw));
                Stolen::Some(n)
            }
            Found::Later(time) => Stolen::Later(time),
            Found::Nothing => Stolen::Nothing,
        }
    }

    fn close(&self, at: &At<'_>) -> Vec<Entry> {
        let mut out = Vec::new();
        for (number, locked) in self.lanes.iter().enumerate() {
            let mut guard = locked.lane.lock().unwrap();
            guard.closed = true;
            for high in [true, false] {
                let mut queue = self.on(at, number, number, &mut guard, high);
                let next = || queue.dequeue().map(Proposal::withdraw);
                out.extend(std::iter::from_fn(next).map(|event| Entry { event, high }));
            }
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
