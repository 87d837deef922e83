//! What the agent knows of a thread: two state machines, one for the policy's view of it and one for the kernel's.

use crate::model::Seq;
use crate::transition::{Checked, Transitions};
use heddle_core::{CpuId, Ns};

/// Where the policy has a thread.
///
/// ```text
///            init          enqueue            propose
///  Unknown -------> Asleep -------> Queued -----------> Dispatched
///     ^              |  ^ ^           ^ '- migrated -'      |
///     '---- exit ----'  | '-- block --+-- preempt, yield ---+--- exit ---> Unknown
///                 defer |  blocked    |
///                       v             |
///                    Deferred ---> DispatchedDeferred ---> Asleep, Deferred, Unknown
/// ```
///
/// A thread whose queue entry outlives it (a policy has no "remove") stays `Queued` until it is proposed, is
/// `Dispatched` for an instant, and is then reported to the policy as blocked or ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PolicyState {
    /// The policy does not know the thread, or got its exit.
    #[default]
    Unknown,
    /// To the policy, the thread sleeps.
    Asleep,
    /// In the policy's queue of [`Thread::home`].
    Queued,
    /// Proposed, and assigned to the CPU [`Thread::home`].
    Dispatched,
    /// In the list of threads that may not run where the policy wanted them. The policy takes it for asleep.
    Deferred,
    /// Assigned to [`Thread::home`] from that list. The policy takes it for asleep.
    DispatchedDeferred,
}

impl Transitions for PolicyState {
    fn successors(self) -> &'static [PolicyState] {
        use PolicyState::{Asleep, Deferred, Dispatched, DispatchedDeferred, Queued, Unknown};
        match self {
            Unknown => &[Asleep],
            Asleep => &[Queued, Deferred, Unknown],
            // Again: stolen, and put into the thief's queue.
            Queued => &[Dispatched, Queued],
            Dispatched => &[Queued, Asleep, Unknown],
            Deferred => &[DispatchedDeferred, Asleep],
            DispatchedDeferred => &[Queued, Asleep, Deferred, Unknown],
        }
    }
}

/// The kernel's last word on a thread, by message, status word or the outcome of a commit.
///
/// Any state can follow any other where messages were lost, with two exceptions, which are the agent's own doing: a
/// slot's new thread starts as `Blocked`, and only a committed or offered thread can be `Leaving`.
///
/// ```text
///                           .---> Offered ------------------.
///                           v        | taken                v
///  Gone -----> Blocked <----> Parked <----> Committed ---> Leaving
///    ^            |             |               |             |
///    '------------+-------------+---------------+-------------'
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KernelState {
    /// There is no such thread.
    #[default]
    Gone,
    /// It sleeps.
    Blocked,
    /// It could run.
    Parked,
    /// It could run, and CPUs may take it without the agent; see `offer.rs`.
    Offered,
    /// It was committed to [`Thread::on`] and is latched there or runs.
    Committed,
    /// Another thread was committed over it, or its CPU was taken back. The message that says what became of it is on
    /// its way.
    Leaving,
}

impl Transitions for KernelState {
    fn successors(self) -> &'static [KernelState] {
        use KernelState::{Blocked, Committed, Gone, Leaving, Offered, Parked};
        match self {
            Gone => &[Blocked],
            Blocked | Leaving => &[Blocked, Parked, Committed, Gone],
            Parked => &[Blocked, Parked, Offered, Committed, Gone],
            // Leaving: it could not be taken back, so a CPU has just taken it.
            Offered => &[Blocked, Parked, Committed, Leaving, Gone],
            Committed => &[Blocked, Parked, Committed, Leaving, Gone],
        }
    }
}

/// A thread of the enclave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thread {
    /// The kernel's number.
    pub tid: u32,
    /// The sequence number of the last message.
    pub tseq: Seq,
    policy_state: Checked<PolicyState>,
    kernel_state: Checked<KernelState>,
    /// The slot was given to another thread while the policy had the old one in its queue: the old one ends when it
    /// is proposed.
    pub is_reused: bool,
    /// The CPU to whose queue the thread belongs or to which it is assigned, or was last.
    pub home: CpuId,
    /// The CPU to which it was committed last.
    pub on: CpuId,
    /// When the wait after its last wakeup began; zero once that wait was recorded.
    pub woken_at: Ns,
    pub class: u8,
}

impl Thread {
    /// Where the policy has the thread.
    pub fn policy_state(&self) -> PolicyState {
        self.policy_state.get()
    }

    /// The kernel's last word on the thread.
    pub fn kernel_state(&self) -> KernelState {
        self.kernel_state.get()
    }

    /// The policy has the thread elsewhere from now on.
    #[track_caller]
    pub fn set_policy_state(&mut self, next: PolicyState) {
        self.policy_state.transition(next);
    }

    /// The kernel said something else of the thread.
    #[track_caller]
    pub fn set_kernel_state(&mut self, next: KernelState) {
        self.kernel_state.transition(next);
    }

    /// Whether the thread is assigned to the CPU [`Thread::home`] (P1).
    pub fn is_assigned(&self) -> bool {
        matches!(self.policy_state(), PolicyState::Dispatched | PolicyState::DispatchedDeferred)
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelState, PolicyState};
    use crate::transition::check_table;

    #[test]
    fn the_policy_moves_a_thread_by_legal_steps_only() {
        use PolicyState::{Asleep, Deferred, Dispatched, DispatchedDeferred, Queued, Unknown};
        check_table(
            &[Unknown, Asleep, Queued, Dispatched, Deferred, DispatchedDeferred],
            "Unknown -> Asleep
             Asleep -> Queued Deferred Unknown
             Queued -> Dispatched Queued
             Dispatched -> Queued Asleep Unknown
             Deferred -> DispatchedDeferred Asleep
             DispatchedDeferred -> Queued Asleep Deferred Unknown",
        );
    }

    #[test]
    fn only_a_committed_or_offered_thread_leaves_and_a_new_one_starts_blocked() {
        use KernelState::{Blocked, Committed, Gone, Leaving, Offered, Parked};
        check_table(
            &[Gone, Blocked, Parked, Offered, Committed, Leaving],
            "Gone -> Blocked
             Blocked -> Blocked Parked Committed Gone
             Parked -> Blocked Parked Offered Committed Gone
             Offered -> Blocked Parked Committed Leaving Gone
             Committed -> Blocked Parked Committed Leaving Gone
             Leaving -> Blocked Parked Committed Gone",
        );
    }
}
