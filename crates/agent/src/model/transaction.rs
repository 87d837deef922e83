//! What an agent asks of a backend.

use super::Seq;
use heddle_core::{Class, CpuId, Ns, TaskId};

/// "Run this thread on that CPU, if what I know of it is still so" (ghOSt, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The thread.
    pub thread: TaskId,
    /// Its number for the kernel, so that a reused slot is noticed.
    pub tid: u32,
    /// The CPU.
    pub cpu: CpuId,
    /// Fails unless this is still the thread's sequence number.
    pub tseq: Option<Seq>,
    /// Fails unless this is still the sequence number of the queue: for agents that give up their own CPU to the thread.
    pub aseq: Option<(super::QueueId, Seq)>,
    /// Take the CPU from the managed thread that has it. Without it the transaction waits behind that one, latched.
    pub preempt: bool,
    /// Straight to the CPU: faster, but it cannot be recalled.
    pub direct: bool,
    /// Fail rather than wait while an ordinary or real-time thread has the CPU.
    pub only_free: bool,
    /// How long the thread may run before the backend parks it of its own accord; none: until the agent says so.
    pub slice: Option<Ns>,
    /// What kind of work the thread does. Backends that have only the kernel's priorities give best-effort threads an ordinary one.
    pub class: Class,
    /// What came of it.
    pub outcome: Outcome,
}

impl Transaction {
    /// Runs `thread`, of which `tseq` was the last news, on `cpu`, at once.
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

/// What came of a transaction: the codes of ghOSt in this project's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Outcome {
    /// It was not committed yet.
    Open,
    /// The thread has the CPU, or gets it as soon as whoever is above it leaves.
    Committed,
    /// There is newer news of the thread (ESTALE).
    Stale,
    /// There is newer news in the agent's queue (ESTALE).
    AgentStale,
    /// No such thread, or its slot is another's by now (ESRCH).
    NoThread,
    /// It sleeps.
    NotRunnable,
    /// It runs already, or is latched.
    OnCpu,
    /// It may not run on that CPU (EPERM).
    Affinity,
    /// It was just being moved; the backend has tried again and gave up.
    Again,
    /// Somebody above managed threads has the CPU, and the transaction would not wait.
    CpuBusy,
    /// The CPU is offline.
    CpuOffline,
    /// The CPU or the thread is of another enclave.
    NotYours,
    /// Another transaction of its all-or-nothing group failed.
    Poisoned,
    /// No such CPU or slot.
    Invalid,
}

impl Outcome {
    /// All, in the order of their numbers, from 0.
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

/// How the transactions of one commit hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Each for itself; the call and the interrupts are shared (ghOSt, section 3.2, group commits).
    Each,
    /// All or none (ghOSt, section 4.5: the two hyperthreads of a core).
    AllOrNothing,
}
