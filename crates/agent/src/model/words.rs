//! Status words: the present state, readable without a system call (ghOSt, section 3.1).

use super::Seq;
use crate::transition::Transitions;
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

/// The state of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum State {
    /// The slot is not in use.
    #[default]
    Free,
    /// Asleep in the kernel.
    Blocked,
    /// Runnable, waiting for a commit.
    Parked,
    /// Committed to a CPU that it has not reached yet.
    Latched,
    /// Running.
    OnCpu,
}

impl State {
    /// All states, in the order of their numbers, from 0.
    pub const ALL: [State; 5] =
        [State::Free, State::Blocked, State::Parked, State::Latched, State::OnCpu];
}

/// ```text
///           created            wakeup             commit              arrival
///  Free --------------> Blocked -----> Parked -------------> Latched ---------> OnCpu
///    ^                    ^  '--blocked---|--- '<-- recalled ---'                 | |
///    |                    '---------------|---------------------------------------' |
///    '--- dead, departed (from each)      '<----- preempted, yield -----------------'
/// ```
///
/// Without an agent, a parked thread gets a CPU directly.
impl Transitions for State {
    fn successors(self) -> &'static [State] {
        use State::{Blocked, Free, Latched, OnCpu, Parked};
        match self {
            Free => &[Blocked],
            Blocked => &[Parked, Free],
            Parked => &[Latched, OnCpu, Free],
            Latched => &[OnCpu, Parked, Free],
            OnCpu => &[Blocked, Parked, Free],
        }
    }
}

/// The status word of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadWord {
    /// The kernel's number.
    pub tid: u32,
    /// The number of its process.
    pub tgid: u32,
    /// Its state.
    pub state: State,
    /// The operating system's number of the CPU where it runs, is latched, or ran last. If it was offered since, the
    /// number of no CPU.
    pub os_cpu: u32,
    /// How many messages it has caused.
    pub tseq: Seq,
    /// When it got its CPU.
    pub on_at: Ns,
    /// Its total time on CPUs, without the present stretch.
    pub runtime: Ns,
    /// When its last wait began, as a runnable thread without a CPU.
    pub runnable_at: Ns,
    /// Its enclave, from 1.
    pub enclave: u32,
    /// Where its messages go.
    pub queue: QueueId,
    /// Its weight, 1 to 10000; 100 is nice 0.
    pub weight: u32,
}

/// In [`ThreadWord::os_cpu`] of a latched thread: it was offered, to a node or a CPU (`HD_SOMEWHERE` in `layout.h`).
pub(crate) const SOMEWHERE: u32 = 1 << 31;
/// With it: to the CPU in the lower bits (`HD_OWN_CPU`).
pub(crate) const OWN_CPU: u32 = 1 << 30;

impl ThreadWord {
    /// Whether CPUs may take the thread without its agent.
    #[must_use]
    pub fn is_offered(&self) -> bool {
        self.state == State::Latched && self.os_cpu & SOMEWHERE != 0
    }
}

/// What occupies a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CpuOccupant {
    /// Nothing.
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

impl CpuOccupant {
    /// All occupants, in the order of their numbers, from 0.
    pub const ALL: [CpuOccupant; 5] = [
        CpuOccupant::Idle,
        CpuOccupant::Managed,
        CpuOccupant::Ordinary,
        CpuOccupant::Realtime,
        CpuOccupant::Agent,
    ];
}

/// The status word of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuWord {
    /// What occupies it.
    pub occupant: CpuOccupant,
    /// The managed thread that runs on it.
    pub current: Option<TaskId>,
    /// The thread that is committed to it but has not reached it yet.
    pub latched: Option<TaskId>,
    /// When this state began.
    pub since: Ns,
    /// Whether it is online.
    pub online: bool,
    /// How often another thread wanted the CPU while its agent spun.
    pub handoff: u32,
}

/// The phase of an enclave's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Phase {
    /// There is no enclave.
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
    /// All phases, in the order of their numbers, from 0.
    pub const ALL: [Phase; 4] = [Phase::Free, Phase::Waiting, Phase::Active, Phase::Orphan];
}

/// ```text
///  Free ---> Waiting <---> Active ---> Orphan
///               '--------------------------^
///  each ---> Free (its threads were given back)
/// ```
impl Transitions for Phase {
    fn successors(self) -> &'static [Phase] {
        use Phase::{Active, Free, Orphan, Waiting};
        match self {
            Free => &[Waiting],
            Waiting => &[Active, Orphan, Free],
            Active => &[Waiting, Orphan, Free],
            Orphan => &[Free],
        }
    }
}

/// The status word of an enclave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnclaveWord {
    /// Its phase.
    pub phase: Phase,
    /// The process of its agent, if one is attached.
    pub agent: Option<u32>,
    /// How many agents have attached so far.
    pub generation: u64,
    /// Transactions that succeeded.
    pub committed: u64,
    /// Transactions that failed.
    pub failed: u64,
    /// Threads in it.
    pub threads: u64,
    /// Offered threads that CPUs took because its `pick_next` said so.
    pub picked: u64,
    /// Times that its `pick_next` left a CPU to the agent.
    pub declined: u64,
    /// Wrong answers of its `pick_next`: the CPU took the thread that was offered first.
    pub misjudged: u64,
}

impl EnclaveWord {
    /// Returns the number of transactions that failed since the word was `before`; 0 if the count went back, which
    /// it never does by itself.
    #[must_use]
    pub fn failed_since(&self, before: &EnclaveWord) -> u64 {
        self.failed.saturating_sub(before.failed)
    }
}

/// The status word of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueWord {
    /// How many messages were sent to it, whether or not there was room.
    pub aseq: Seq,
    /// Messages for which there was no room. When it grows, the agent reads the status words again.
    pub lost: u64,
    /// Threads whose messages go there.
    pub associated: u64,
}

#[cfg(test)]
mod tests {
    use super::{Phase, State};
    use crate::transition::check_table;

    #[test]
    fn a_thread_changes_state_by_legal_steps_only() {
        check_table(
            &State::ALL,
            "Free -> Blocked
             Blocked -> Parked Free
             Parked -> Latched OnCpu Free
             Latched -> OnCpu Parked Free
             OnCpu -> Blocked Parked Free",
        );
    }

    #[test]
    fn an_orphan_enclave_gets_no_other_agent() {
        check_table(
            &Phase::ALL,
            "Free -> Waiting
             Waiting -> Active Orphan Free
             Active -> Waiting Orphan Free
             Orphan -> Free",
        );
    }
}
