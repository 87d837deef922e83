//! What the kernel's side of a central agent costs.

use heddle_core::Ns;
use std::fmt;

/// Parameters, each with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// In results.
    pub name: &'static str,
    /// For each message that the agent reads.
    pub message: Ns,
    /// For each group commit.
    pub group: Ns,
    /// For each transaction in it.
    pub transaction: Ns,
    /// From the commit until the thread runs.
    pub arrival: Ns,
    /// Where the figures are from.
    pub source: &'static str,
}

impl Costs {
    /// Of the paper, and of what was measured of sched_ext.
    #[must_use]
    pub fn all() -> Vec<Costs> {
        vec![
            Costs {
                name: "ghost",
                // Reading is part of the 265 ns of a delivery; what else the agent does is measured.
                message: Ns(50),
                // Lines 4 and 7 of Table 3: 668 ns for one, 3964 ns for ten.
                group: Ns(302),
                transaction: Ns(366),
                arrival: Ns(1064),
                source: "ghOSt, Table 3, lines 4, 5 and 7",
            },
            Costs {
                name: "scx",
                message: Ns(50),
                // An empty program run, and a slot with the move of a thread between queues, natively.
                group: Ns(800),
                transaction: Ns(560),
                arrival: Ns(1064),
                source: "empty BPF run measured, 800 ns; 60 ns a slot measured and 500 ns assumed for the move and interrupt",
            },
        ]
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a message {}, a group {} and {} a transaction, {} until it runs ({})",
            self.message, self.group, self.transaction, self.arrival, self.source
        )
    }
}
