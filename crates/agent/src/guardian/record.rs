//! The guardian's record of its enclave, for `heddle agent status` and for the process that cleans up.

use super::JoinReport;
use super::cpus::Cpus;
use crate::transition::Transitions;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The backend that carries out an enclave's transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// sched_ext.
    Scx,
    /// The kernel's fair scheduler: nice values, slices, weights.
    Fair,
    /// Real-time priorities.
    Rt,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Scx => "scx",
            Kind::Fair => "fair",
            Kind::Rt => "rt",
        })
    }
}

/// How the agent process is organised (ghOSt, section 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agents {
    /// One agent for all CPUs.
    #[default]
    Central,
    /// One agent on each CPU.
    Local,
}

/// The stage of an enclave, as its guardian sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// No agent yet.
    Starting,
    /// An agent schedules.
    Active,
    /// One agent replaces another.
    Upgrading,
    /// An agent has died, and another is being started.
    Restarting,
    /// The threads belong to the default scheduler again; their program still runs.
    GivenBack,
}

/// ```text
///  Starting ---> Active <---> Upgrading ---.
///                  |  ^            |       |
///                  |  '-------> Restarting |
///                  '---------------+-------+---> GivenBack (for good; stopping it again changes nothing)
/// ```
impl Transitions for Stage {
    fn successors(self) -> &'static [Stage] {
        use Stage::{Active, GivenBack, Restarting, Starting, Upgrading};
        match self {
            Starting => &[Active],
            Active => &[Upgrading, Restarting, GivenBack],
            // Restarting: the backend was lost while the new agent attached.
            Upgrading => &[Active, Restarting, GivenBack],
            Restarting => &[Active, GivenBack],
            GivenBack => &[GivenBack],
        }
    }
}

/// The record of an enclave: `guardian.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The version of this format.
    pub schema: u32,
    /// The enclave's name.
    pub name: String,
    /// The backend.
    pub backend: Kind,
    /// The enclave's stage.
    pub stage: Stage,
    /// The policy as typed: name and parameters.
    pub policy: String,
    /// How the agent process is organised.
    pub agents: Agents,
    /// Whether the agent spins.
    pub spin: bool,
    /// Its CPUs.
    pub cpus: Cpus,
    /// The guardian's process.
    pub guardian: u32,
    /// When that began, in the kernel's ticks: the number may be reused once the process has ended.
    #[serde(default)]
    pub guardian_began: Option<u64>,
    /// The agent's process.
    pub agent: Option<u32>,
    /// When that began.
    #[serde(default)]
    pub agent_began: Option<u64>,
    /// The user whose enclave it is.
    pub uid: u32,
    /// When it was made, in milliseconds of the Unix epoch.
    pub since_ms: u64,
    /// The program and its arguments, or what was joined.
    pub program: Vec<String>,
    /// The program's first process.
    pub pid: Option<u32>,
    /// The processes that ran already and joined when the enclave was made.
    #[serde(default)]
    pub taken: Option<JoinReport>,
    /// How often an agent was replaced by an upgrade.
    pub upgrades: u32,
    /// How often an agent was replaced because the enclave got other CPUs.
    #[serde(default)]
    pub resizes: u32,
    /// How long there was no agent in the last upgrade, in microseconds.
    pub last_gap_us: Option<u64>,
    /// How often an agent that had died was replaced.
    #[serde(default)]
    pub restarts: u32,
    /// Why the last of those died.
    #[serde(default)]
    pub last_death: Option<String>,
    /// Why the threads were given back.
    pub reason: Option<String>,
    /// Heddle's version.
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::Stage;
    use crate::transition::check_table;

    #[test]
    fn threads_given_back_stay_given_back() {
        use Stage::{Active, GivenBack, Restarting, Starting, Upgrading};
        check_table(
            &[Starting, Active, Upgrading, Restarting, GivenBack],
            "Starting -> Active
             Active -> Upgrading Restarting GivenBack
             Upgrading -> Active Restarting GivenBack
             Restarting -> Active GivenBack
             GivenBack -> GivenBack",
        );
    }
}
