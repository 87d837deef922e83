//! What the guardian writes of its enclave, for `heddle agent status` and for whoever cleans up after it.

use super::Taken;
use super::cpus::Cpus;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which backend carries out an enclave's transactions.
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
    /// One for all CPUs.
    #[default]
    Central,
    /// One on each CPU.
    Local,
}

/// Where an enclave is, as its guardian sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// No agent yet.
    Starting,
    /// An agent schedules.
    Active,
    /// One agent follows another.
    Upgrading,
    /// An agent has died, and another is started.
    Restarting,
    /// The threads are the default scheduler's again, and their program still runs.
    GivenBack,
}

/// An enclave as its guardian knows it: `guardian.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Of this format.
    pub schema: u32,
    /// The enclave.
    pub name: String,
    /// What carries out its transactions.
    pub backend: Kind,
    /// Where it is.
    pub stage: Stage,
    /// As typed: name and parameters.
    pub policy: String,
    /// How the agent process is organised.
    pub agents: Agents,
    /// Whether the agent spins.
    pub spin: bool,
    /// Its CPUs.
    pub cpus: Cpus,
    /// The guardian's process.
    pub guardian: u32,
    /// When that began, in the kernel's ticks: the number may be another's once it has ended.
    #[serde(default)]
    pub guardian_began: Option<u64>,
    /// The agent's process.
    pub agent: Option<u32>,
    /// When that began.
    #[serde(default)]
    pub agent_began: Option<u64>,
    /// Whose it is.
    pub uid: u32,
    /// When it was made, in milliseconds of the Unix epoch.
    pub since_ms: u64,
    /// The program and its arguments, or what was joined.
    pub program: Vec<String>,
    /// The program's first process.
    pub pid: Option<u32>,
    /// What ran already and was taken in when the enclave was made.
    #[serde(default)]
    pub taken: Option<Taken>,
    /// How often an agent was replaced.
    pub upgrades: u32,
    /// How long there was no agent in the last upgrade, in microseconds.
    pub last_gap_us: Option<u64>,
    /// How often an agent that had died was followed by another.
    #[serde(default)]
    pub restarts: u32,
    /// What the last of those died of.
    #[serde(default)]
    pub last_death: Option<String>,
    /// Why the threads were given back.
    pub reason: Option<String>,
    /// Of Heddle.
    pub version: String,
}
