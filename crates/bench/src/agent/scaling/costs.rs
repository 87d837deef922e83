//! Costs of the kernel's side of a central agent.

use heddle_core::Ns;
use std::fmt;

/// Parameters, each with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Name in results.
    pub name: &'static str,
    /// Per message that the agent reads.
    pub message: Ns,
    /// Per group commit.
    pub group: Ns,
    /// Per transaction in it.
    pub transaction: Ns,
    /// From the commit to the thread's first instruction.
    pub arrival: Ns,
    /// From one thread to the next, if its CPU need not wait for the agent.
    pub switch: Ns,
    /// Source of the figures.
    pub source: &'static str,
}

impl Costs {
    /// The paper's costs, and those measured with sched_ext.
    #[must_use]
    pub fn all() -> Vec<Costs> {
        vec![
            Costs {
                name: "ghost",
                // Reading is part of the 265 ns of a delivery; the agent's other work is measured.
                message: Ns(50),
                // Lines 4 and 7 of Table 3: 668 ns for one, 3964 ns for ten.
                group: Ns(302),
                transaction: Ns(366),
                arrival: Ns(1064),
                switch: Ns(599),
                source: "ghOSt, Table 3, lines 4, 5, 7 and 12",
            },
            Costs {
                name: "scx",
                message: Ns(50),
                // An empty program run, and a slot with a move between queues, natively.
                group: Ns(800),
                transaction: Ns(560),
                arrival: Ns(1064),
                switch: Ns(599),
                source: "empty BPF run measured, 800 ns; 60 ns a slot measured and 500 ns assumed for the move \
                    and interrupt",
            },
        ]
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a message {}, a group {} and {} a transaction, {} until it runs, {} for a CPU that takes a thread itself \
             ({})",
            self.message, self.group, self.transaction, self.arrival, self.switch, self.source
        )
    }
}
