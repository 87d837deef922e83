//! The policy agent: any [`heddle_core::Policy`] as the agent of an enclave. It knows no operating system.
//!
//! ```text
//!  messages --> news.rs --> policy's queues --> choose.rs --> seats --> commit.rs --> one group commit a round
//!                  ^                               ^                        |
//!           adopt.rs: status words        quanta.rs: ticks, who makes way   '--> what failed waits for its message
//! ```
//!
//! For each thread the agent keeps two things apart: where the *policy* has it (`table::At`) and what the *kernel* last said
//! of it (`table::Is`). A policy cannot take a thread out of the middle of its queue, and what the kernel says may come at any
//! time; so the two may differ, and are brought together when the policy proposes the thread.
//!
//! # Invariants
//! - **P1** A thread sits on one CPU at most and a CPU has one at most (`cpus::Cpu::task`); where a thread is `table::At::Out` or
//!   `table::At::Guest`, it is the one of its CPU.
//! - **P2** The policy hears of a thread what every other hook would tell it, in the same order: what it proposes is run, or given
//!   back by `CommitFailed`, or told to be asleep or at its end.
//! - **P3** A seat whose commit failed because of newer news waits for that news, and not for ever: after [`PATIENCE`] the
//!   status word is read.
//! - **P4** No memory is taken after [`Scheduler::new`], except where messages were lost or threads are adopted.
//! - **P5** The work of a round is bounded ([`Settings::messages`], [`PASSES`]), whatever the kernel says.

mod adopt;
mod affinity;
mod choose;
mod commit;
mod cpus;
mod driver;
mod gang;
mod histogram;
mod news;
#[cfg(test)]
mod props;
mod quanta;
mod round;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod view;

pub use histogram::Histogram;
pub use round::Round;
pub use tally::{CLASSES, Counts, Tally};

use crate::Backend;
use crate::classes::Classes;
use crate::model::{Occupant, QueueId, QueueWord, Seq, Transaction};
use cpus::Cpu;
use driver::Recorder;
use heddle_core::{CpuId, CpuSet, Model, Ns, Policy, Rng, Step, TaskId, TaskList, TaskSlot};
use table::Thread;
use view::View;

/// Threads that one enclave can have, as in `bpf/sched/include/layout.h`.
pub const THREADS: usize = 16_384;
/// How long a seat waits for the message that its failed commit announces.
pub const PATIENCE: Ns = Ns::from_ms(1);
/// How often one round drains, decides and commits, where commits fail.
pub const PASSES: usize = 4;
/// After what time a round looks again at what a backend refused.
const BACKOFF: Ns = Ns::from_us(100);

/// How a scheduler is set up.
pub struct Settings {
    /// Slots of threads.
    pub threads: usize,
    /// The most messages of one round.
    pub messages: usize,
    /// Seeds the policy's random numbers.
    pub seed: u64,
    /// Tells classes apart.
    pub classes: Classes,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { threads: THREADS, messages: 1024, seed: 1, classes: Classes::default() }
    }
}

/// A queue as its agent has read it.
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    id: QueueId,
    /// The queue's number when its last message was read.
    aseq: Seq,
    lost: u64,
}

impl Read {
    /// Messages were read up to `last`. The queue's word, which was read after them, has at least that number; where it has not,
    /// somebody has made up a number, and with it every commit would count as one that has missed news.
    fn saw(&mut self, last: Seq, queue: &QueueWord) {
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
    rng: Rng,
    classes: Classes,
    /// Message queues: one for all CPUs, or one each.
    reads: Vec<Read>,
    /// CPUs without a seat taken.
    free: CpuSet,
    /// Seats to be committed.
    chosen: CpuSet,
    /// Seats that wait for news (P3).
    awaiting: CpuSet,
    /// CPUs whose thread has outlived its quantum while nobody waited.
    overdue: CpuSet,
    /// Seats committed behind somebody above managed threads.
    behind: CpuSet,
    /// CPUs that run no thread: offline, or the agent's own.
    barred: CpuSet,
    /// Seats that are not committed before others have left their core ([`Policy::GANG`]).
    held: CpuSet,
    /// CPUs whose agents have something to do.
    nudged: CpuSet,
    /// Threads that may not run where the policy wanted them.
    asides: TaskList,
    /// Threads that became runnable in this round.
    woken: Vec<TaskId>,
    /// What the policy's dispatcher has assigned.
    assigned: Vec<(CpuId, TaskId)>,
    batch: Vec<Transaction>,
    /// The CPU on which the agent spins.
    own: Option<CpuId>,
    /// When to look again at what was refused.
    retry_at: Ns,
    messages: usize,
    tally: Tally,
    recorder: Recorder,
}

impl<'a, P: Policy> Scheduler<'a, P> {
    /// A scheduler that knows of no thread yet: [`Scheduler::adopt`] comes next.
    #[must_use]
    pub fn new(policy: P, backend: &'a dyn Backend, settings: Settings) -> Self {
        let infos = backend.cpus().to_vec();
        let cpus = infos.len();
        let queues = if P::MODEL == Model::Central { 1 } else { cpus };
        let read = Read { id: backend.default_queue(), ..Read::default() };
        Scheduler {
            backend,
            queues: (0..queues).map(|_| policy.queue()).collect(),
            policy,
            slots: (0..settings.threads).map(|_| TaskSlot::default()).collect(),
            threads: vec![Thread::default(); settings.threads],
            cpus: vec![Cpu::default(); cpus],
            view: View::new(infos, P::MODEL),
            rng: Rng::new(settings.seed),
            classes: settings.classes,
            reads: vec![read],
            free: CpuSet::first(cpus),
            chosen: CpuSet::EMPTY,
            awaiting: CpuSet::EMPTY,
            overdue: CpuSet::EMPTY,
            behind: CpuSet::EMPTY,
            barred: CpuSet::EMPTY,
            held: CpuSet::EMPTY,
            nudged: CpuSet::EMPTY,
            asides: TaskList::default(),
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

    /// A message queue for each CPU: agents that decide for their own CPU ([`Scheduler::round_of`]).
    pub fn set_queues(&mut self, queues: &[QueueId]) {
        self.reads = queues.iter().map(|&id| Read { id, ..Read::default() }).collect();
    }

    /// The CPU on which the agent spins, which no thread gets.
    pub fn set_own(&mut self, cpu: Option<CpuId>) {
        self.own = cpu;
    }

    /// Records what happens to threads from now on, without bound: for models and tests.
    pub fn record(&mut self) {
        self.recorder.start();
    }

    /// What was recorded since [`Scheduler::record`]; recording ends.
    pub fn recorded(&mut self) -> Vec<Step> {
        self.recorder.stop()
    }

    /// What was counted, and how many threads wait for each CPU now (in the central model all in the first).
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// How many threads wait in each of the policy's queues.
    pub fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        self.queues.iter().map(|queue| self.policy.len(queue))
    }

    /// The enclave CPU to which an agent that spins best goes from its own: one that has nothing to run, else one that runs a
    /// thread of ours. None where others have them all.
    #[must_use]
    pub fn refuge(&self) -> Option<CpuId> {
        let others = || (0..self.cpus.len() as u16).map(CpuId).filter(|&cpu| Some(cpu) != self.own);
        let is_ours = |&cpu: &CpuId| {
            let word = self.backend.cpu(cpu);
            word.online && matches!(word.occupant, Occupant::Idle | Occupant::Managed)
        };
        let idle = others().find(|&cpu| self.free.contains(cpu) && self.is_quiet(cpu));
        idle.or_else(|| others().find(is_ours))
    }

    fn thread(&mut self, task: TaskId) -> &mut Thread {
        &mut self.threads[task.index()]
    }

    fn cpu(&mut self, cpu: CpuId) -> &mut Cpu {
        &mut self.cpus[cpu.index()]
    }
}
