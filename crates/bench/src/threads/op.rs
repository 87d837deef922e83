//! The operations, after Skyloft's Table 7.

use std::fmt;
use std::str::FromStr;

/// One operation on threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Two tasks yield to each other; one operation is one yield with the switch that it causes.
    Yield,
    /// A task spawns an empty task and joins it.
    SpawnJoin,
    /// A task spawns a detached task and yields so that it runs: Skyloft's way to measure spawning.
    SpawnYield,
    /// Locks and unlocks an uncontended mutex.
    Mutex,
    /// Two tasks wake each other in turn through condition variables; one operation is one direction.
    Condvar,
}

impl Op {
    /// All of them, in the order of the table.
    pub const ALL: [Op; 5] = [Op::Yield, Op::SpawnJoin, Op::SpawnYield, Op::Mutex, Op::Condvar];

    /// The name in results and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Yield => "yield",
            Op::SpawnJoin => "spawn_join",
            Op::SpawnYield => "spawn_yield",
            Op::Mutex => "mutex",
            Op::Condvar => "condvar",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(name: &str) -> Result<Op, String> {
        Op::ALL.into_iter().find(|op| op.name() == name).ok_or_else(|| {
            format!("no operation `{name}`; there are {}", Op::ALL.map(Op::name).join(", "))
        })
    }
}
