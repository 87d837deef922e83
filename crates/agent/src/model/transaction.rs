//! What an agent asks a backend to do.

use super::Seq;
use heddle_core::{Class, CpuId, Ns, TaskId};

/// "Run this thread on that CPU, if what I know of it is still true" (ghOSt, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The thread.
    pub thread: TaskId,
    /// The kernel's number of the thread, by which a reused slot is noticed.
    pub tid: u32,
    /// The CPU.
    pub cpu: CpuId,
    /// Fails unless this is still the thread's sequence number.
    pub tseq: Option<Seq>,
    /// Fails unless this is still the sequence number of the queue: for agents that give up their own CPU to the
    /// thread.
    pub aseq: Option<(super::QueueId, Seq)>,
    /// Take the CPU from the managed thread that has it. Otherwise the transaction waits behind that thread,
    /// latched.
    pub preempt: bool,
    /// Dispatch straight to the CPU: faster, but past recall.
    pub direct: bool,
    /// Fail rather than wait while an ordinary or real-time thread has the CPU.
    pub only_free: bool,
    /// How long the thread may run before the backend parks it by itself; none: until the agent decides.
    pub slice: Option<Ns>,
    /// The kind of work the thread does. Backends that have only the kernel's priorities give best-effort threads
    /// an ordinary one.
    pub class: Class,
    /// The outcome, which the backend fills in.
    pub outcome: Outcome,
}

impl Transaction {
    /// Runs `thread`, whose last message had the number `tseq`, on `cpu` at once.
    #[must_use]
    pub fn new(thread: TaskId, tid: u32, cpu: CpuId, tseq: Seq) -> Transaction {
        Transaction {
            thread,
            tid,
            cpu,
            tseq: Some(tseq),
            aseq: None,
            preempt: true,
            direct: false,
            only_free: false,
            slice: None,
            class: Class::LC,
            outcome: Outcome::Open,
        }
    }
}

/// The outcome of a transaction: ghOSt's codes in this project's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Outcome {
    /// Not committed yet.
    Open,
    /// The thread has the CPU, or gets it as soon as the occupant above it leaves.
    Committed,
    /// The thread has a newer message (ESTALE).
    Stale,
    /// The agent's queue has a newer message (ESTALE).
    AgentStale,
    /// No such thread, or its slot belongs to another by now (ESRCH).
    NoThread,
    /// The thread sleeps.
    NotRunnable,
    /// The thread runs already, or is latched.
    OnCpu,
    /// The thread may not run on that CPU (EPERM).
    Affinity,
    /// The thread was just being moved; the backend retried and gave up.
    Again,
    /// Something above managed threads has the CPU, and the transaction would not wait.
    CpuBusy,
    /// The CPU is offline.
    CpuOffline,
    /// The CPU or the thread belongs to another enclave.
    NotYours,
    /// Another transaction of its all-or-nothing group failed.
    Poisoned,
    /// No such CPU or slot.
    Invalid,
}

impl Outcome {
    /// All outcomes, in the order of their numbers, from 0.
    pub const ALL: [Outcome; 14] = [
        Outcome::Open,
        Outcome::Committed,
        Outcome::Stale,
        Outcome::AgentStale,
        Outcome::NoThread,
        Outcome::NotRunnable,
        Outcome::OnCpu,
        Outcome::Affinity,
        Outcome::Again,
        Outcome::CpuBusy,
        Outcome::CpuOffline,
        Outcome::NotYours,
        Outcome::Poisoned,
        Outcome::Invalid,
    ];

    /// Whether the thread will run.
    #[must_use]
    pub fn is_committed(self) -> bool {
        self == Outcome::Committed
    }
}

/// How the transactions of one commit depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Each by itself; the call and the interrupts are shared (ghOSt, section 3.2, group commits).
    Each,
    /// All or none (ghOSt, section 4.5: the two hyperthreads of a core).
    AllOrNothing,
}
