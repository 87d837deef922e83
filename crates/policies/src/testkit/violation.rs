//! What the kit can find.

use heddle_core::driver::Rule;
use heddle_core::{CpuId, Ns, TaskId};
use std::fmt;
use std::string::String;

/// A rule that a policy broke.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// `len` is not the number of waiting tasks in the queue.
    Length {
        /// The value of `len`.
        says: usize,
        /// How many tasks wait.
        waiting: usize,
    },
    /// A rule that every hook enforces.
    Broke(Rule),
    /// The policy proposed another task than the first that it had published.
    NotAsPublished(TaskId),
    /// The policy claims to be first in, first out, and proposed a task before an earlier one.
    NotFifo(TaskId),
    /// The policy asked for expected waits but does not declare that it uses them.
    Undeclared,
    /// Tasks wait, all CPUs ask, and none is proposed.
    Lost(TaskId),
    /// This task kept waiting while others came and went for very long.
    Starved(TaskId),
    /// The policy claims to be work conserving, and a CPU that asked got nothing while a task waited.
    Idle(CpuId),
    /// `balance` kept naming victims though none had any tasks.
    EndlessBalance,
    /// `tick` asked to preempt before the quantum, or although the policy has none.
    EarlyPreemption {
        /// How long the task had run.
        ran: Ns,
        /// The value of `quantum`.
        quantum: Option<Ns>,
    },
    /// `tick` put off its decision again and again.
    Undecided,
    /// The policy panicked, for example because a task was enqueued twice.
    Panic(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Length { says, waiting } => {
                write!(f, "len says {says} where {waiting} tasks wait")
            }
            Violation::Broke(rule) => rule.fmt(f),
            Violation::NotAsPublished(task) => {
                write!(f, "proposed {task}, but published another task as the next")
            }
            Violation::NotFifo(task) => {
                write!(f, "claims to be first in, first out, and proposed {task} too early")
            }
            Violation::Undeclared => {
                f.write_str("asks for expected waits, but USES_EXPECTED_WAIT is false")
            }
            Violation::Lost(task) => write!(f, "{task} waits and is never proposed"),
            Violation::Starved(task) => write!(f, "{task} starves while others come and go"),
            Violation::Idle(cpu) => write!(f, "{cpu} got nothing to run while a task waited"),
            Violation::EndlessBalance => f.write_str("balance names victims without end"),
            Violation::EarlyPreemption { ran, quantum: Some(quantum) } => {
                write!(f, "preempts after {ran}, with a shortest quantum of {quantum}")
            }
            Violation::EarlyPreemption { ran, quantum: None } => {
                write!(f, "preempts after {ran}, but claims to have no quantum")
            }
            Violation::Undecided => f.write_str("tick puts off its decision without end"),
            Violation::Panic(message) => write!(f, "panics: {message}"),
        }
    }
}

impl std::error::Error for Violation {}
