//! Status words: what is so now, readable without a system call (ghOSt, section 3.1).

use super::Seq;
use core::fmt;
use heddle_core::{Ns, TaskId};

/// A message queue of an enclave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue{}", self.0)
    }
}

/// Where a thread is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum State {
    /// The slot is nobody's.
    #[default]
    Free,
    /// Asleep in the kernel.
    Blocked,
    /// Could run and waits for a commit.
    Parked,
    /// Committed to a CPU and not there yet.
    Latched,
    /// Runs.
    OnCpu,
}

impl State {
    /// All, in the order of their numbers, from 0.
    pub const ALL: [State; 5] =
        [State::Free, State::Blocked, State::Parked, State::Latched, State::OnCpu];
}

/// What is so of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadWord {
    /// The kernel's number.
    pub tid: u32,
    /// The number of its process.
    pub tgid: u32,
    /// Where it is.
    pub state: State,
    /// The operating system's number of the CPU where it runs, is latched, or ran last.
    pub os_cpu: u32,
    /// How many messages it has caused.
    pub tseq: Seq,
    /// When it got its CPU.
    pub on_at: Ns,
    /// How long it was on CPUs in all, without the present stretch.
    pub runtime: Ns,
    /// Since when it could run and had no CPU, the last time that this was so.
    pub runnable_at: Ns,
    /// Its enclave, from 1.
    pub enclave: u32,
    /// Where its messages go.
    pub queue: QueueId,
    /// 1 to 10000; 100 is nice 0.
    pub weight: u32,
}

/// Who has a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Occupant {
    /// Nobody.
    #[default]
    Idle,
    /// A thread of its enclave.
    Managed,
    /// A thread of the default scheduler.
    Ordinary,
    /// A thread above the default scheduler.
    Realtime,
    /// An agent.
    Agent,
}

impl Occupant {
    /// All, in the order of their numbers, from 0.
    pub const ALL: [Occupant; 5] = [
        Occupant::Idle,
        Occupant::Managed,
        Occupant::Ordinary,
        Occupant::Realtime,
        Occupant::Agent,
    ];
}

/// What is so of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuWord {
    /// Who has it.
    pub occupant: Occupant,
    /// The managed thread that runs on it.
    pub current: Option<TaskId>,
    /// The thread that is committed to it and not there yet.
    pub latched: Option<TaskId>,
    /// Since when this is so.
    pub since: Ns,
    /// Whether it is online.
    pub online: bool,
    /// How often somebody else wanted the CPU while its agent spun.
    pub handoff: u32,
}

/// Where an enclave is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Phase {
    /// There is none.
    #[default]
    Free,
    /// Just made, or between two agents: threads stay parked for the grace time.
    Waiting,
    /// An agent is attached.
    Active,
    /// Its agent is gone: threads run first in, first out until they are given back to the default scheduler.
    Orphan,
}

impl Phase {
    /// All, in the order of their numbers, from 0.
    pub const ALL: [Phase; 4] = [Phase::Free, Phase::Waiting, Phase::Active, Phase::Orphan];
}

/// What is so of an enclave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnclaveWord {
    /// Where it is.
    pub phase: Phase,
    /// The process of its agent, if one is attached.
    pub agent: Option<u32>,
    /// How many agents were attached so far.
    pub generation: u64,
    /// Transactions that succeeded.
    pub committed: u64,
    /// Transactions that failed.
    pub failed: u64,
    /// Threads in it.
    pub threads: u64,
}

impl EnclaveWord {
    /// Transactions that failed since it was `before`. None where the word has gone back, which it never does by itself.
    #[must_use]
    pub fn failed_since(&self, before: &EnclaveWord) -> u64 {
        self.failed.saturating_sub(before.failed)
    }
}

/// What is so of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueWord {
    /// How many messages were sent to it, whether or not there was room.
    pub aseq: Seq,
    /// Messages for which there was no room. When it grows, the agent reads the status words anew.
    pub lost: u64,
    /// Threads whose messages go there.
    pub associated: u64,
}
