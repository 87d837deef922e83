//! The contract between a policy and the hook that runs it.

use crate::driver::TurnTime;
use crate::{CpuId, CpuSet, Ns, ParamError, Params, TaskId, TaskSlot, Topology};
use core::cell::Cell;

/// Which run queues there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// One run queue per CPU; [`Policy::balance`] moves tasks between them.
    PerCpu,
    /// One run queue for all CPUs, from which a dispatcher hands out tasks ([`Policy::poll`]).
    Central,
}

/// Why a task enters a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueue {
    /// It was just created.
    New,
    /// It yielded the CPU but is still runnable.
    Yield,
    /// It was preempted.
    Preempted,
    /// The event it waited for occurred.
    Wakeup,
    /// It comes from another CPU's queue, by [`Policy::steal`] or because its CPU went away.
    Migrated,
    /// The policy proposed it and the hook could not run it (ghOSt, section 3.2: a failed transaction).
    CommitFailed,
}

/// The answer to [`Policy::tick`]: whether to preempt the running task, or when to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resched {
    /// Preempt it now. The hook may skip this while nothing else waits for the CPU (Aspen, section 3.2).
    Now,
    /// Let it run; ask again once it has run this much longer, which is not zero.
    After(Ns),
    /// Let it run this much longer, which is not zero, unless a task is enqueued in this queue: then ask again. Only
    /// about a task that has run for a quantum. A hook that cannot notice what is enqueued asks again after a quantum.
    Until(Ns),
    /// Let it run until it gives up the CPU itself.
    Never,
}

/// The answer to [`Policy::balance`]: what a CPU without work should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Take a task from the queue of this CPU.
    From(CpuId),
    /// Ask again after this long, which is not zero, or earlier if something happens: a waiting task may not be taken
    /// yet.
    Later(Ns),
    /// Stay idle until something happens.
    Nowhere,
}

/// What best-effort tasks, those of any class but [`crate::Class::LC`], get compared with LC tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BestEffort {
    /// The same: the policy does not distinguish them.
    Alike,
    /// This weight, relative to an LC task's 1024 (nice 0 in Linux): 1 to 1024.
    Weight(u32),
    /// Whatever LC tasks leave.
    Below,
}

/// A policy's needs, expressed in terms of the kernel's fair scheduler: weights, slices, idle threads. See
/// [`Policy::fair_terms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairTerms {
    /// What best-effort tasks get.
    pub best_effort: BestEffort,
    /// How long an LC task runs while another one waits.
    pub slice: Ns,
    /// How long a best-effort task runs while another one waits.
    pub be_slice: Ns,
}

impl FairTerms {
    /// Returns terms with turns of `slice` for all.
    pub const fn new(best_effort: BestEffort, slice: Ns) -> FairTerms {
        FairTerms { best_effort, slice, be_slice: slice }
    }
}

/// A hook's view of the machine; implemented by hooks, called through [`Cx`].
pub trait Host {
    /// Returns the time (I3).
    fn now(&self) -> Ns;
    /// Returns the CPUs of this policy.
    fn topology(&self) -> Topology<'_>;
    /// Returns how many tasks wait in the queue of `cpu`; may be slightly stale.
    fn queue_len(&self, cpu: CpuId) -> usize;
    /// Returns whether `cpu` has nothing to run; may be slightly stale.
    fn is_idle(&self, cpu: CpuId) -> bool;
    /// Returns whether any CPU has nothing to run; may be slightly stale. Constant time, unlike asking each CPU.
    fn any_idle(&self) -> bool;

    /// Returns the turns of `cpu`, timed by the hook if the policy needs them ([`Policy::USES_EXPECTED_WAIT`]).
    fn turns(&self, cpu: CpuId) -> &TurnTime;

    /// Returns how long a task put into the queue of `cpu` now would wait for its turn; may be slightly stale.
    fn expected_wait(&self, cpu: CpuId) -> Ns {
        self.turns(cpu).wait(self.now(), self.queue_len(cpu))
    }

    /// Returns the CPU nearest to `from` that has nothing to run, `from` itself first. Hooks with a faster way than
    /// asking every CPU override this.
    fn nearest_idle(&self, from: CpuId) -> Option<CpuId> {
        if !self.any_idle() {
            return None;
        }
        if self.is_idle(from) {
            return Some(from);
        }
        let topology = self.topology();
        let idle = topology.cpus().filter(|&cpu| self.is_idle(cpu));
        idle.min_by_key(|&cpu| topology.distance(from, cpu))
    }

    /// Returns the `nth` (0, 1, ...) of the other CPUs with waiting tasks, nearest to `from` first; equally near CPUs
    /// come in numeric order from `start` on, cyclically.
    fn nearest_waiting(&self, from: CpuId, start: CpuId, nth: usize) -> Option<CpuId> {
        let topology = self.topology();
        let n = topology.len();
        let around = move || (0..n).map(move |i| CpuId(((start.index() + i) % n) as u16));
        let at = |far| around().filter(move |&cpu| topology.distance(from, cpu) == far);
        (1..=Topology::FARTHEST).flat_map(at).filter(|&cpu| self.queue_len(cpu) > 0).nth(nth)
    }
}

/// A small, fast, repeatable random number generator (xorshift64*; Vigna 2016): for choices, not for secrets.
#[derive(Debug)]
pub struct Rng(Cell<u64>);

impl Rng {
    /// Returns a generator; equal seeds give equal sequences, in every version.
    pub fn new(seed: u64) -> Rng {
        // The state must not be zero; the odd constant spreads small seeds over all bits.
        Rng(Cell::new((seed.wrapping_add(1)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1))
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number in `0..bound`, which must not be zero; the bias is below `bound / 2^32`.
    pub fn below(&self, bound: usize) -> usize {
        (((self.next_u64() >> 32) * bound as u64) >> 32) as usize
    }
}

/// Everything that a policy may read to decide.
pub struct Cx<'a, T> {
    /// The CPU for which the hook calls.
    pub cpu: CpuId,
    /// The slot table, as [`crate::TaskList`] expects it.
    pub tasks: &'a [TaskSlot<T>],
    host: &'a dyn Host,
    rng: &'a Rng,
}

impl<T> Clone for Cx<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Cx<'_, T> {}

impl<'a, T> Cx<'a, T> {
    /// Returns a context for one call; called by hooks.
    #[inline]
    pub fn new(cpu: CpuId, tasks: &'a [TaskSlot<T>], host: &'a dyn Host, rng: &'a Rng) -> Self {
        Cx { cpu, tasks, host, rng }
    }

    /// Returns the slot of `task`.
    #[inline]
    pub fn task(&self, task: TaskId) -> &'a TaskSlot<T> {
        &self.tasks[task.index()]
    }

    /// Returns the time. Reading a clock costs the runtime about 10 ns, so ask only if the policy needs it.
    pub fn now(&self) -> Ns {
        self.host.now()
    }

    /// Returns random numbers from the hook's seed.
    pub fn rng(&self) -> &Rng {
        self.rng
    }

    /// Returns the CPUs of this policy.
    pub fn topology(&self) -> Topology<'a> {
        self.host.topology()
    }

    /// Returns how many tasks wait for `cpu`; a hint.
    pub fn queue_len(&self, cpu: CpuId) -> usize {
        self.host.queue_len(cpu)
    }

    /// Returns how long a task put into the queue of `cpu` now would wait for its turn; a hint.
    pub fn expected_wait(&self, cpu: CpuId) -> Ns {
        self.host.expected_wait(cpu)
    }

    /// Returns whether any CPU has nothing to run; a hint, in constant time.
    pub fn any_idle(&self) -> bool {
        self.host.any_idle()
    }

    /// Returns whether `cpu` has nothing to run; a hint.
    pub fn is_idle(&self, cpu: CpuId) -> bool {
        self.host.is_idle(cpu)
    }

    /// Returns the CPU nearest to `from` that has nothing to run, itself first; a hint. Constant time while no CPU is
    /// idle.
    pub fn nearest_idle(&self, from: CpuId) -> Option<CpuId> {
        self.host.nearest_idle(from)
    }

    /// Returns the `nth` of the other CPUs with waiting tasks, nearest first, equally near ones in turn from `start`; a
    /// hint.
    pub fn nearest_waiting(&self, start: CpuId, nth: usize) -> Option<CpuId> {
        self.host.nearest_waiting(self.cpu, start, nth)
    }
}

/// The decisions of a central dispatcher in one [`Policy::poll`].
pub trait Dispatch {
    /// Returns the CPUs that wait for a task.
    fn idle(&self) -> CpuSet;
    /// Proposes to run `task` on `cpu`, which must be idle and then no longer is.
    fn assign(&mut self, cpu: CpuId, task: TaskId);
}

/// A thread policy: which task runs where, when and for how long. The operations are Skyloft's (Table 2).
///
/// # Rules
/// - No allocation, no locks, no system calls, no clock but [`Cx::now`] (I3, I4). Work per call should not
///   grow with the number of tasks.
/// - The hook serialises all calls for one queue; `&self` is shared by all CPUs and holds configuration.
/// - What [`dequeue`](Policy::dequeue) and [`steal`](Policy::steal) return is a proposal. If the hook cannot run the
///   task, it returns it by `enqueue(.., CommitFailed)`.
/// - Every enqueued task is eventually proposed, exactly once per enqueue.
pub trait Policy: Sized + Send + Sync + 'static {
    /// Per-task state; all fields are [`crate::Var`] or similar.
    type Task: Default + Send + Sync + 'static;
    /// Per-queue state: one for each CPU, or a single one in the central model.
    type Queue: Send + 'static;

    /// The name by which users choose it.
    const NAME: &'static str;
    /// Who owns the queues.
    const MODEL: Model;
    /// Whether no CPU stays idle while a task waits, given that the hook balances.
    const WORK_CONSERVING: bool;
    /// Whether [`balance`](Policy::balance) ever names a CPU; if not, hooks do not wake an idle CPU for a task that
    /// waits in another one's queue.
    const BALANCES: bool = true;
    /// Whether [`preempt`](Policy::preempt) ever names a CPU; if not, hooks skip the question.
    const PREEMPTS: bool = false;

    /// Whether the CPUs of a physical core run tasks of only one class at a time (ghOSt, section 4.5). Agents then
    /// commit the choices for a core together or not at all, and only after tasks of other classes have left it. Hooks
    /// whose tasks trust each other may ignore this.
    const GANG: bool = false;

    /// Whether a queue hands out tasks in order of arrival, regardless of what they are, and keeps no history. Hooks
    /// may then hand a task directly to a CPU whose queue is empty.
    const FIFO: bool = false;

    /// Whether the policy counts the running tasks of each CPU, and so must be notified by [`block`](Policy::block) or
    /// [`task_exit`](Policy::task_exit) as soon as one leaves. Hooks that cannot do this refuse the policy.
    const COUNTS_RUNNING: bool = false;

    /// Whether the policy uses [`Cx::expected_wait`]. Only then do hooks time each turn.
    const USES_EXPECTED_WAIT: bool = false;

    /// Whether [`tick`](Policy::tick) ever answers [`Resched::Until`]. If so, a hook may ask when a turn begins what
    /// the answer after a quantum will be, so that it need not interrupt the task then.
    const EXTENDS: bool = false;

    /// Whether [`upcoming`](Policy::upcoming) names tasks.
    const PUBLISHES: bool = false;

    /// Creates the policy from its parameters (`sched_init`).
    ///
    /// # Errors
    /// A [`ParamError`] that names the parameter, the value given and what is allowed.
    fn new<'a>(params: &mut Params<'a>) -> Result<Self, ParamError<'a>>;

    /// Returns an empty run queue.
    fn queue(&self) -> Self::Queue;

    /// Returns how many tasks wait in `queue`. Constant time.
    fn len(&self, queue: &Self::Queue) -> usize;

    /// Returns the shortest quantum that the policy will ask for; `None` if it never preempts. Hooks use it to size
    /// their timers and to refuse what the machine cannot do.
    fn quantum(&self) -> Option<Ns> {
        None
    }

    /// Returns the terms by which the kernel's fair scheduler implements this policy, with nice values and slices, so
    /// that agents need not decide anything; `None` if these cannot express its order of tasks.
    fn fair_terms(&self) -> Option<FairTerms> {
        None
    }

    /// Initialises the policy's state of a new task (`task_init`). Its slot holds the attributes. The policy's state in
    /// the slot may be an earlier task's: whatever the policy reads before it writes must be set here.
    fn task_init(&self, cx: &Cx<'_, Self::Task>, task: TaskId) {
        let _ = (cx, task);
    }

    /// Called when the running task ends (`task_terminate`).
    fn task_exit(&self, cx: &Cx<'_, Self::Task>, queue: &mut Self::Queue, task: TaskId) {
        let _ = (cx, queue, task);
    }

    /// Puts `task` into `queue` (`task_enqueue`). `cx.cpu` is the CPU whose queue it is; in the central model, the
    /// one that enqueues.
    fn enqueue(&self, cx: &Cx<'_, Self::Task>, queue: &mut Self::Queue, task: TaskId, why: Enqueue);

    /// Removes and returns the task for `cx.cpu` to run next (`task_dequeue`).
    fn dequeue(&self, cx: &Cx<'_, Self::Task>, queue: &mut Self::Queue) -> Option<TaskId>;

    /// Removes `task`, which waits in `queue`, for `cx.cpu` to run now: another waits for what it may hold, such as a
    /// lock, and lends it the CPU; or the CPU has taken what [`upcoming`](Policy::upcoming) had named. Returns false,
    /// as by default, if it stays until its turn, which a policy that [publishes](Policy::PUBLISHES) never does.
    fn remove(&self, cx: &Cx<'_, Self::Task>, queue: &mut Self::Queue, task: TaskId) -> bool {
        let _ = (cx, queue, task);
        false
    }

    /// Names the tasks of `queue` that CPUs would get next if nothing else happened, in order, until `each` returns
    /// false. They stay in the queue. Hooks that decide elsewhere than CPUs switch may let CPUs take them without
    /// asking, and report it by [`remove`](Policy::remove) (ghOSt, section 3.2: the fast path). Only if
    /// [`PUBLISHES`](Policy::PUBLISHES). In the per-CPU model only the first counts.
    fn upcoming(
        &self,
        cx: &Cx<'_, Self::Task>,
        queue: &Self::Queue,
        each: &mut dyn FnMut(TaskId) -> bool,
    ) {
        let _ = (cx, queue, each);
    }

    /// Returns what the user's code that chooses among the tasks that [`upcoming`](Policy::upcoming) has named may know
    /// of `task`: any number, by default 0. Policies document theirs.
    fn hint(&self, cx: &Cx<'_, Self::Task>, task: TaskId) -> u64 {
        let _ = (cx, task);
        0
    }

    /// Called when the running task goes to sleep (`task_block`).
    fn block(&self, cx: &Cx<'_, Self::Task>, queue: &mut Self::Queue, task: TaskId) {
        let _ = (cx, queue, task);
    }

    /// Chooses the queue for a new or woken task (`task_wakeup`). `home` is the CPU where it was created or last ran,
    /// `cx.cpu` the one that wakes it. Called without the queue, and only if there is a choice: there are several CPUs,
    /// and the task is not just leaving a CPU. Ignored in the central model.
    fn place(&self, cx: &Cx<'_, Self::Task>, task: TaskId, home: CpuId) -> CpuId {
        let _ = (cx, task);
        home
    }

    /// Returns the CPU of `queue` whose running task must be preempted at once, because `task`, new or woken, was just
    /// enqueued and no idle CPU takes it. Called only if [`PREEMPTS`](Policy::PREEMPTS); a hook that cannot access the
    /// queue at that moment leaves the decision to the next tick.
    fn preempt(
        &self,
        cx: &Cx<'_, Self::Task>,
        queue: &mut Self::Queue,
        task: TaskId,
    ) -> Option<CpuId> {
        let _ = (cx, queue, task);
        None
    }

    /// Decides whether to preempt `task`, which has run on `cx.cpu` for `ran` since it was dequeued
    /// (`sched_timer_tick`).
    fn tick(
        &self,
        cx: &Cx<'_, Self::Task>,
        queue: &mut Self::Queue,
        task: TaskId,
        ran: Ns,
    ) -> Resched {
        let _ = (cx, queue, task, ran);
        Resched::Never
    }

    /// Chooses the queue from which `cx.cpu`, which has nothing to run, should steal (`sched_balance`). The hook calls
    /// with attempt 0, 1, 2, ... until a steal succeeds or the answer names no CPU, at most
    /// [`driver::ATTEMPTS`](crate::driver::ATTEMPTS) times for each CPU. Per-CPU model only.
    fn balance(&self, cx: &Cx<'_, Self::Task>, attempt: usize) -> Balance {
        let _ = (cx, attempt);
        Balance::Nowhere
    }

    /// Returns how many tasks an idle CPU takes from another's queue at once, at most
    /// [`driver::STEAL_LIMIT`](crate::driver::STEAL_LIMIT). It runs the first and enqueues the others with
    /// [`Enqueue::Migrated`].
    fn steal_limit(&self) -> usize {
        1
    }

    /// Returns how many CPUs besides the one that [`place`](Policy::place) names may start a task that arrives while
    /// that CPU is busy and they are idle. For hooks in which the kernel decides this before the policy is called:
    /// descriptors that become ready.
    fn peers(&self) -> usize {
        if Self::BALANCES { usize::MAX } else { 0 }
    }

    /// Removes a task from `victim`, the queue of the CPU `from`, which [`balance`](Policy::balance) named, for
    /// `cx.cpu`. The hook enqueues what it cannot run at once with [`Enqueue::Migrated`].
    fn steal(
        &self,
        cx: &Cx<'_, Self::Task>,
        from: CpuId,
        victim: &mut Self::Queue,
    ) -> Option<TaskId> {
        let _ = (cx, from, victim);
        None
    }

    /// Assigns tasks to idle CPUs (`sched_poll`). Central model with a dispatcher only.
    fn poll(&self, cx: &Cx<'_, Self::Task>, queue: &mut Self::Queue, out: &mut dyn Dispatch) {
        for cpu in out.idle().iter() {
            let cx = Cx { cpu, ..*cx };
            match self.dequeue(&cx, queue) {
                Some(task) => out.assign(cpu, task),
                // If the policy keeps CPUs free, the next one may get a task that this one may not.
                None if Self::WORK_CONSERVING => break,
                None => {}
            }
        }
    }
}
