//! The policy agent: runs any [`heddle_core::Policy`] as the agent of an enclave. It knows no operating
//! system.
//!
//! ```text
//!  messages --> messages.rs --> policy's queues --> choose.rs --> CPUs --> commit.rs --> one group commit a round
//!                    ^                                 ^                       |
//!             adopt.rs: status words       quanta.rs: ticks, preemption        '--> a failed one waits for its message
//!                                          offer.rs: what CPUs take without the agent
//! ```
//!
//! The agent keeps two states for each thread: where the *policy* has it (`thread::PolicyState`) and what the
//! *kernel* last said of it (`thread::KernelState`). A policy cannot take a thread out of the middle of its
//! queue, and kernel messages come at any time, so the two may differ; they are reconciled when the policy
//! proposes the thread. Both, and the stages of a CPU's assignment (`cpus::Stage`), change only by
//! `transition`, which panics where the step is illegal.
//!
//! # Invariants
//! - **P1** A thread is assigned to at most one CPU, and a CPU has at most one thread assigned
//!   (`cpus::Cpu::task`). It has exactly one CPU while it is `PolicyState::Dispatched` or
//!   `PolicyState::DispatchedDeferred`.
//! - **P2** The policy gets the calls that every other hook would make, in the same order: a proposed thread
//!   runs, is returned by `CommitFailed`, or is reported as blocked or ended.
//! - **P3** An assignment whose commit failed because of a newer message waits for that message, but not for
//!   ever: after [`PATIENCE`] the status word is read.
//! - **P4** Nothing is allocated after [`Scheduler::new`], except when messages were lost or threads are
//!   adopted.
//! - **P5** The work of a round is bounded ([`Settings::messages`], [`PASSES`]), whatever the kernel says.

mod adopt;
mod affinity;
mod choose;
mod commit;
mod cpus;
mod deadlines;
mod driver;
mod gang;
mod messages;
mod offer;
#[cfg(test)]
mod props;
mod quanta;
mod round;
mod tally;
#[cfg(test)]
mod tests;
mod thread;
mod view;

pub use round::Round;
pub use tally::{CLASSES, Counts, Delays, Tally};

use crate::classes::Classes;
use crate::model::{CpuOccupant, QueueId, QueueWord, Seq, Transaction};
use crate::{Backend, Takers};
use cpus::Cpu;
use deadlines::Deadlines;
use driver::Recorder;
use heddle_core::{
    CpuId, CpuInfo, CpuSet, Event, Model, Ns, Policy, Rng, TaskId, TaskList, TaskSlot,
};
use thread::Thread;
use view::View;

/// The maximum number of threads of an enclave, as in `bpf/sched/include/layout.h`.
pub const THREADS: usize = 16_384;
/// How long an assignment waits for the message that its failed commit announces.
pub const PATIENCE: Ns = Ns::from_ms(1);
/// How often one round drains, decides and commits while commits fail.
pub const PASSES: usize = 4;
/// The delay until a round retries what a backend refused.
const BACKOFF: Ns = Ns::from_us(100);

/// Settings of a scheduler.
pub struct Settings {
    /// The number of thread slots.
    pub threads: usize,
    /// The most messages read in a round.
    pub messages: usize,
    /// The seed of the policy's random numbers.
    pub seed: u64,
    /// Assigns classes to threads.
    pub classes: Classes,
    /// Whether CPUs may take the threads that are next without asking, if policy and backend can do that
    /// ([`Policy::PUBLISHES`], [`crate::Traits::offers`]).
    pub fast_path: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        let classes = Classes::default();
        Settings { threads: THREADS, messages: 1024, seed: 1, classes, fast_path: true }
    }
}

/// How far the agent has read a queue.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    id: QueueId,
    /// The queue's sequence number at its last message read.
    aseq: Seq,
    lost: u64,
}

impl Reader {
    /// Messages were read up to `last`. The queue's word was read after them and is therefore at least
    /// `last`. If it is not, the number was forged, and every commit would fail as one that has missed
    /// messages.
    fn advance(&mut self, last: Seq, queue: &QueueWord) {
        self.aseq = last.min(queue.aseq);
    }
}

/// A policy that decides for an enclave.
///
/// ```ignore
/// let mut scheduler = Scheduler::new(policy, &backend, Settings::default());
/// scheduler.adopt();
/// loop {
///     let round = scheduler.round();
///     backend.wait(backend.default_queue(), round.next);
/// }
/// ```
pub struct Scheduler<'a, P: Policy> {
    backend: &'a dyn Backend,
    policy: P,
    queues: Vec<P::Queue>,
    slots: Vec<TaskSlot<P::Task>>,
    threads: Vec<Thread>,
    cpus: Vec<Cpu>,
    view: View,
    /// The enclave's CPUs by the system's number.
    by_os_id: Vec<Option<CpuId>>,
    rng: Rng,
    classes: Classes,
    /// Message queues: one for all CPUs, or one each.
    readers: Vec<Reader>,
    /// CPUs without an assignment.
    free: CpuSet,
    /// CPUs whose assignment is to be committed.
    chosen: CpuSet,
    /// CPUs whose assignment waits for a message (P3).
    awaiting: CpuSet,
    /// CPUs whose assignment is committed.
    running: CpuSet,
    /// When to look at each CPU again.
    deadlines: Deadlines,
    /// CPUs whose thread has outlived its quantum while no other waited.
    overdue: CpuSet,
    /// CPUs whose assignment was committed behind an occupant above managed threads.
    behind: CpuSet,
    /// CPUs that run no thread: offline, or the agent's own.
    barred: CpuSet,
    /// CPUs whose assignment is not committed before other threads have left their core ([`Policy::GANG`]).
    held: CpuSet,
    /// CPUs whose agents have work to do.
    nudged: CpuSet,
    /// Threads that may not run where the policy wanted them.
    deferred: TaskList,
    /// Central model: threads that were offered, in that order. Some may not be any more.
    offered: Vec<(TaskId, Takers)>,
    /// Those that should be, listed anew in each round.
    upcoming: Vec<(TaskId, Takers)>,
    /// Whether threads are offered at all.
    offers: bool,
    /// Whether a `pick_next` chooses among them.
    picks: bool,
    /// Threads that became runnable in this round.
    woken: Vec<TaskId>,
    /// The assignments of the policy's dispatcher.
    assigned: Vec<(CpuId, TaskId)>,
    batch: Vec<Transaction>,
    /// The CPU on which the agent spins.
    own: Option<CpuId>,
    /// When to retry what was refused.
    retry_at: Ns,
    messages: usize,
    tally: Tally,
    recorder: Recorder,
}

impl<'a, P: Policy> Scheduler<'a, P> {
    /// Creates a scheduler that knows no threads yet; call [`Scheduler::adopt`] next.
    #[must_use]
    pub fn new(policy: P, backend: &'a dyn Backend, settings: Settings) -> Self {
        let infos = backend.cpus().to_vec();
        let cpus = infos.len();
        let queues = if P::MODEL == Model::Central { 1 } else { cpus };
        let read = Reader { id: backend.default_queue(), ..Reader::default() };
        Scheduler {
            backend,
            queues: (0..queues).map(|_| policy.queue()).collect(),
            policy,
            slots: (0..settings.threads).map(|_| TaskSlot::default()).collect(),
            threads: vec![Thread::default(); settings.threads],
            cpus: vec![Cpu::default(); cpus],
            by_os_id: by_os_id(&infos),
            view: View::new(infos, P::MODEL),
            rng: Rng::new(settings.seed),
            classes: settings.classes,
            readers: vec![read],
            free: CpuSet::first(cpus),
            chosen: CpuSet::EMPTY,
            awaiting: CpuSet::EMPTY,
            running: CpuSet::EMPTY,
            deadlines: Deadlines::new(cpus),
            overdue: CpuSet::EMPTY,
            behind: CpuSet::EMPTY,
            barred: CpuSet::EMPTY,
            held: CpuSet::EMPTY,
            nudged: CpuSet::EMPTY,
            deferred: TaskList::default(),
            offered: Vec::with_capacity(cpus),
            upcoming: Vec::with_capacity(cpus),
            offers: settings.fast_path && P::PUBLISHES && !P::GANG && backend.traits().offers,
            picks: backend.traits().picks,
            woken: Vec::with_capacity(settings.messages),
            assigned: Vec::with_capacity(cpus),
            batch: Vec::with_capacity(cpus),
            own: None,
            retry_at: Ns::MAX,
            messages: settings.messages,
            tally: Tally::default(),
            recorder: Recorder::default(),
        }
    }

    /// Sets a message queue for each CPU, for agents that decide for their own CPU ([`Scheduler::round_of`]).
    pub fn set_queues(&mut self, queues: &[QueueId]) {
        self.readers = queues.iter().map(|&id| Reader { id, ..Reader::default() }).collect();
    }

    /// Sets the CPU on which the agent spins, which no thread gets.
    pub fn set_own(&mut self, cpu: Option<CpuId>) {
        self.own = cpu;
    }

    /// Records what happens to threads from now on, without bound: for models and tests.
    pub fn record(&mut self) {
        self.recorder.start();
    }

    /// Stops recording and returns what was recorded since [`Scheduler::record`].
    pub fn recorded(&mut self) -> Vec<Event> {
        self.recorder.stop()
    }

    /// Returns the counters.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns how many threads wait in each of the policy's queues.
    pub fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        self.queues.iter().map(|queue| self.policy.len(queue))
    }

    /// Returns the enclave CPU to which a spinning agent best moves from its own: one that has nothing to
    /// run, else one that runs a managed thread. None if other threads have them all.
    #[must_use]
    pub fn next_spin_cpu(&self) -> Option<CpuId> {
        let others = || (0..self.cpus.len() as u16).map(CpuId).filter(|&cpu| Some(cpu) != self.own);
        let is_ours = |&cpu: &CpuId| {
            let word = self.backend.cpu(cpu);
            word.online && matches!(word.occupant, CpuOccupant::Idle | CpuOccupant::Managed)
        };
        let idle = others().find(|&cpu| self.free.contains(cpu) && self.is_idle(cpu));
        idle.or_else(|| others().find(is_ours))
    }

    fn thread(&mut self, task: TaskId) -> &mut Thread {
        &mut self.threads[task.index()]
    }

    fn cpu(&mut self, cpu: CpuId) -> &mut Cpu {
        &mut self.cpus[cpu.index()]
    }
}

fn by_os_id(cpus: &[CpuInfo]) -> Vec<Option<CpuId>> {
    let most = cpus.iter().map(|cpu| cpu.os_id as usize + 1).max().unwrap_or(0);
    let mut by_os_id = vec![None; most];
    for (at, cpu) in cpus.iter().enumerate() {
        by_os_id[cpu.os_id as usize] = Some(CpuId(at as u16));
    }
    by_os_id
}
