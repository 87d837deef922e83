//! What is known of a CPU.

use heddle_core::{Ns, TaskId};

/// How far a seat has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Nobody has it.
    #[default]
    Free,
    /// A thread is to be committed.
    Chosen,
    /// The commit waits for news of the thread (P3).
    Awaiting,
    /// It is committed.
    Given,
}

/// A CPU's seat.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    pub task: Option<TaskId>,
    pub stage: Stage,
    /// Since when it is so.
    pub since: Ns,
    /// What the thread had run in all when it was given the CPU: interrupted and back, it does not begin anew.
    pub ran_before: Ns,
    /// The thread that still runs while its successor is to be committed.
    pub before: Option<TaskId>,
    /// When the policy is asked whether the thread may run on.
    pub look: Ns,
    /// When a CPU without a thread looks again for one ([`heddle_core::Balance::Later`]).
    pub retry: Ns,
    /// The thread shall make way, as soon as this CPU's own agent comes by.
    pub make_way: bool,
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu {
            task: None,
            stage: Stage::Free,
            since: Ns::ZERO,
            ran_before: Ns::ZERO,
            before: None,
            look: Ns::MAX,
            retry: Ns::MAX,
            make_way: false,
        }
    }
}
