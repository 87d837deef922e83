//! A policy's faults, as far as a driver can detect them.

use crate::{CpuId, TaskId};
use core::fmt;

/// A rule of [`Policy`](crate::Policy) that an answer broke. The test kit of `heddle-policies` finds more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// `dequeue`, `steal` or `poll` proposed a task that does not wait in that queue: it was already proposed, runs,
    /// sleeps, has ended, waits elsewhere, or never existed.
    NotWaiting(TaskId),
    /// `place` or `preempt` named a CPU that does not exist, or `preempt` one of another queue.
    NoSuchCpu {
        /// The method at fault.
        call: &'static str,
        /// The CPU that it named.
        cpu: CpuId,
    },
    /// `balance` named a CPU that does not exist, or the one that asked.
    NoVictim(CpuId),
    /// `balance` answered `Later(0)`, which is no answer: the hook would have to ask again at once.
    NoDelay,
    /// `poll` assigned a task to a CPU that is not idle.
    BusyCpu(CpuId),
    /// `tick` answered `After(0)`: the hook would have to ask again at once.
    NoProgress,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::NotWaiting(task) => write!(f, "proposed {task}, which is not in that run queue"),
            Rule::NoSuchCpu { call, cpu } => {
                write!(f, "`{call}` named {cpu}, which does not exist or has another queue")
            }
            Rule::NoVictim(cpu) => {
                write!(f, "`balance` named {cpu}, which does not exist or is the CPU that asks")
            }
            Rule::NoDelay => f.write_str("`balance` wants to be asked again after no time"),
            Rule::BusyCpu(cpu) => write!(f, "`poll` assigned a task to {cpu}, which is not idle"),
            Rule::NoProgress => f.write_str("`tick` wants to be asked again after no time"),
        }
    }
}
