//! The operations on async tasks.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One operation on async tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// A task spawns an empty task and awaits it.
    SpawnAwait,
    /// A task spawns 10,000 empty tasks, then awaits all of them; one operation is one of these.
    SpawnBatch,
    /// Two tasks yield to each other; one operation is one yield.
    Yield,
    /// Two tasks wake each other in turn through two `tokio::sync::Notify`; one operation is one direction.
    Wake,
}

impl Op {
    /// All of them, in the order of the table.
    pub const ALL: [Op; 4] = [Op::SpawnAwait, Op::SpawnBatch, Op::Yield, Op::Wake];

    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Op::SpawnAwait => "spawn_await",
            Op::SpawnBatch => "spawn_batch",
            Op::Yield => "yield",
            Op::Wake => "wake",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
