//! The policy and its run queues (SKQ's kevqs), behind a trait object.

use heddle_core::driver::{
    self, Abilities, Driver, Hook, Lacks, Proposal, Rule, SearchResult, Victims,
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

/// Who makes a call.
pub(crate) struct Caller<'a> {
    pub index: usize,
    pub host: &'a dyn Host,
    pub rng: &'a Rng,
}

/// An event to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub event: u32,
    pub high: bool,
}

/// The run queues belong to an earlier worker set: use the newer one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed;

/// How much a worker takes from its run queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    /// Events in total.
    pub all: usize,
    /// How many of them may be of high priority.
    pub high: usize,
}

/// The result of looking into other run queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stolen {
    /// This many events were taken.
    Some(usize),
    /// Nothing was taken; look again after this time.
    Later(Ns),
    /// Nothing was taken.
    Nothing,
}

/// What workers need to know of a policy at every event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Run queues are first in, first out, and keep no other state.
    pub is_fifo: bool,
    /// An idle worker may take what waits for another one.
    pub is_shared: bool,
    /// There are several run queues to choose from.
    pub has_choice: bool,
}

/// What a thread that handles events can do for a policy.
const ABILITIES: Abilities = Abilities {
    preemption: Err("a thread that handles an event is not interrupted"),
    ends: Err("threads take and release events in batches"),
};

/// A policy over a number of run queues.
pub(crate) trait Schedule: Send + Sync {
    /// Returns the properties of the policy.
    fn kind(&self) -> Kind;
    /// How many workers besides its home may take an event when it happens.
    fn peers(&self) -> usize;
    /// Returns how many events wait in run queue `index`.
    fn waiting(&self, index: usize) -> usize;
    /// Introduces a new event to the policy.
    fn begin(&self, caller: &Caller<'_>, event: u32, class: Class);
    /// Returns the run queue for an event that happened at `caller`.
    fn place(&self, caller: &Caller<'_>, event: u32, home: CpuId) -> usize;
    fn enqueue(
        &self,
        caller: &Caller<'_>,
        index: usize,
        entries: &[Entry],
        why: Enqueue,
    ) -> Result<(), Closed>;
    /// Takes what the caller should handle next, high priority first.
    fn take(&self, caller: &Caller<'_>, quota: Quota, out: &mut Vec<u32>);
    /// Takes events from other run queues for the caller.
    fn steal(&self, caller: &Caller<'_>, out: &mut Vec<u32>) -> Stolen;
    /// Closes and empties all run queues. Later calls get [`Closed`].
    fn close(&self, caller: &Caller<'_>) -> Vec<Entry>;
    /// Returns the same policy, with what it knows of the events, over another number of run queues.
    fn regroup(&self, queues: usize) -> Box<dyn Schedule>;
}

/// Makes the schedule that `text` chooses.
///
/// # Errors
/// As [`heddle_policies::with_policy`]; [`Lacks`] if the policy needs something that threads with events
/// cannot do.
pub(crate) fn make(
    text: &str,
    capacity: usize,
    queues: usize,
) -> Result<Result<Box<dyn Schedule>, Lacks>, PolicyError> {
    heddle_policies::with_policy(text, Make { capacity, queues })
}

struct Make {
    capacity: usize,
    queues: usize,
}

impl Visitor for Make {
    type Out = Result<Box<dyn Schedule>, Lacks>;
    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        ABILITIES.suffice(&policy)?;
        let tasks = (0..self.capacity).map(|_| TaskSlot::default()).collect();
        Ok(Box::new(RunQueues::new(Arc::new(Shared { policy, tasks }), self.queues)))
    }
}

/// What survives a change of run queues.
struct Shared<P: Policy> {
    policy: P,
    tasks: Box<[TaskSlot<P::Task>]>,
}

struct RunQueue<P: Policy> {
    normal: P::Queue,
    high: P::Queue,
    closed: bool,
}

/// The lock of a run queue, and its length for those who do not hold the lock.
#[repr(align(128))]
struct LockedQueue<P: Policy> {
    queue: Mutex<RunQueue<P>>,
    waiting: AtomicU32,
}

struct RunQueues<P: Policy> {
    shared: Arc<Shared<P>>,
    queues: Box<[LockedQueue<P>]>,
}

impl<P: Policy> RunQueues<P> {
    fn new(shared: Arc<Shared<P>>, queues: usize) -> RunQueues<P> {
        let queues = if P::MODEL == Model::Central { 1 } else { queues.max(1) };
        let queue = || shared.policy.queue();
        let run_queue = || RunQueue { normal: queue(), high: queue(), closed: false };
        let locked = |_| LockedQueue { queue: Mutex::new(run_queue()), waiting: AtomicU32::new(0) };
        let queues = (0..queues).map(locked).collect();
        RunQueues { shared, queues }
    }

    fn of(&self, index: usize) -> &LockedQueue<P> {
        &self.queues[if P::MODEL == Model::Central { 0 } else { index }]
    }

    fn cx<'a>(&'a self, caller: &'a Caller<'_>, index: usize) -> Cx<'a, P::Task> {
        Cx::new(CpuId(index as u16), &self.shared.tasks, caller.host, caller.rng)
    }

    /// Makes a call for `caller` that concerns no queue's content.
    fn driver<'a>(&'a self, caller: &'a Caller<'_>) -> Driver<'a, P, Call<'a, P>> {
        let call =
            Call { shared: &self.shared, locked: self.of(caller.index), number: 0, others: 0 };
        Driver::new(&self.shared.policy, self.cx(caller, caller.index), call)
    }

    /// Returns one of the two lists of run queue `number`, which the caller has locked, for a call by the
    /// worker of queue `by`.
    #[inline]
    fn on<'q, 'a: 'q>(
        &'a self,
        caller: &'a Caller<'_>,
        by: usize,
        number: usize,
        run_queue: &'q mut RunQueue<P>,
        high: bool,
    ) -> driver::RunQueue<'q, P, Call<'a, P>> {
        let (queue, other) = match high {
            true => (&mut run_queue.high, &run_queue.normal),
            false => (&mut run_queue.normal, &run_queue.high),
        };
        let others = self.shared.policy.len(other);
        let call = Call { shared: &self.shared, locked: self.of(number), number, others };
        Driver::new(&self.shared.policy, self.cx(caller, by), call).on(queue)
    }
}

/// A run queue as the hook of one call about one of its lists.
struct Call<'a, P: Policy> {
    shared: &'a Shared<P>,
    locked: &'a LockedQueue<P>,
    number: usize,
    /// How many events wait in the other list.
    others: usize,
}

impl<P: Policy> Call<'_, P> {
    /// Returns the mark of events that wait in this run queue.
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

    /// Aborts: continuing would handle an event twice or never.
    fn broke(&self, policy: &'static str, rule: Rule) -> ! {
        heddle_sys::abort(format_args!("policy `{policy}`: {rule}; this is a fault in the policy"))
    }

    /// Aborts: the events of this run queue would be lost with its lock.
    fn panicked(&self, policy: &'static str, call: &'static str) {
        heddle_sys::abort(format_args!(
            "policy `{policy}` panicked in `{call}`; this is a fault in the policy"
        ))
    }
}

/// The other run queues, for a search by `caller`.
struct OtherQueues<'a, P: Policy> {
    queues: &'a RunQueues<P>,
    caller: &'a Caller<'a>,
    /// Whether to wait for queues that are locked.
    is_patient: bool,
    /// A queue was locked and therefore skipped.
    was_busy: bool,
}

impl<'a, P: Policy> Victims<P> for OtherQueues<'a, P> {
    type Hook = Call<'a, P>;

    fn reach<R>(
        &mut self,
        victim: CpuId,
        take: impl FnOnce(&mut driver::RunQueue<'_, P, Call<'a, P>>) -> R,
    ) -> Option<R> {
        let (queues, caller, number) = (self.queues, self.caller, victim.index());
        let queue = &queues.of(number).queue;
        let guard = if self.is_patient { queue.lock().ok() } else { queue.try_lock().ok() };
        let Some(mut guard) = guard else {
            self.was_busy = true;
            return None;
        };
        let high = queues.shared.policy.len(&guard.high) > 0;
        Some(take(&mut queues.on(caller, caller.index, number, &mut guard, high)))
    }
}

impl<P: Policy> Schedule for RunQueues<P> {
    fn kind(&self) -> Kind {
        let is_central = P::MODEL == Model::Central;
        Kind {
            is_fifo: P::FIFO,
            is_shared: is_central || P::BALANCES && self.queues.len() > 1,
            has_choice: self.queues.len() > 1,
        }
    }

    fn peers(&self) -> usize {
        self.shared.policy.peers()
    }

    fn waiting(&self, index: usize) -> usize {
        self.of(index).waiting.load(Relaxed) as usize
    }

    fn begin(&self, caller: &Caller<'_>, event: u32, class: Class) {
        let task = &self.shared.tasks[event as usize];
        task.set_attrs(TaskAttrs { class, ..TaskAttrs::default() });
        self.driver(caller).init(TaskId(event));
    }

    fn place(&self, caller: &Caller<'_>, event: u32, home: CpuId) -> usize {
        if self.queues.len() == 1 {
            return 0;
        }
        self.driver(caller).place(TaskId(event), home).index()
    }

    fn enqueue(
        &self,
        caller: &Caller<'_>,
        index: usize,
        entries: &[Entry],
        why: Enqueue,
    ) -> Result<(), Closed> {
        let mut guard = self.of(index).queue.lock().unwrap();
        if guard.closed {
            return Err(Closed);
        }
        for &Entry { event, high } in entries {
            let mut queue = self.on(caller, index, index, &mut guard, high);
            self.shared.tasks[event as usize].host.set(queue.hook().mark());
            queue.enqueue(TaskId(event), why);
        }
        Ok(())
    }

    fn take(&self, caller: &Caller<'_>, quota: Quota, out: &mut Vec<u32>) {
        let locked = self.of(caller.index);
        if locked.waiting.load(Relaxed) == 0 {
            return;
        }
        let mut guard = locked.queue.lock().unwrap();
        for (high, most) in [(true, quota.high), (false, quota.all)] {
            let mut queue = self.on(caller, caller.index, caller.index, &mut guard, high);
            while out.len() < most {
                let Some(event) = queue.dequeue() else { break };
                out.push(event.withdraw());
            }
        }
    }

    fn steal(&self, caller: &Caller<'_>, out: &mut Vec<u32>) -> Stolen {
        if self.queues.len() == 1 {
            return Stolen::Nothing;
        }
        // A locked queue is skipped: its owner or another thief is using it (SKQ, section 4.2). But they may
        // leave something there after checking for idle workers and before the caller is known to be idle. So
        // a caller that finds nothing else waits for them (E3).
        let mut others = OtherQueues { queues: self, caller, is_patient: false, was_busy: false };
        let mut found = self.driver(caller).search(&mut others);
        if others.was_busy && !matches!(found, SearchResult::Tasks(_)) {
            others.is_patient = true;
            found = self.driver(caller).search(&mut others);
        }
        match found {
            SearchResult::Tasks(stolen) => {
                let n = stolen.len();
                out.extend(stolen.into_iter().map(Proposal::withdraw));
                Stolen::Some(n)
            }
            SearchResult::Later(time) => Stolen::Later(time),
            SearchResult::Nothing => Stolen::Nothing,
        }
    }

    fn close(&self, caller: &Caller<'_>) -> Vec<Entry> {
        let mut out = Vec::new();
        for (number, locked) in self.queues.iter().enumerate() {
            let mut guard = locked.queue.lock().unwrap();
            guard.closed = true;
            for high in [true, false] {
                let mut queue = self.on(caller, number, number, &mut guard, high);
                let next = || queue.dequeue().map(Proposal::withdraw);
                out.extend(std::iter::from_fn(next).map(|event| Entry { event, high }));
            }
        }
        out
    }

    fn regroup(&self, queues: usize) -> Box<dyn Schedule> {
        Box::new(RunQueues::new(Arc::clone(&self.shared), queues))
    }
}
