//! The protocol between guardian and agent process: lines of JSON over the agent's standard input and output.
//!
//! ```text
//! guardian                        agent process
//!   Assignment           ------->
//!                        <-------   Ready      it has loaded what it needs; nothing has happened yet
//!   Attach               ------->
//!                        <-------   Attached   threads are scheduled
//!   Leave                ------->
//!                        <-------   Left       it has detached, for a successor
//! ```
//!
//! The end of its standard input tells the agent that its guardian is dead; the end of its output tells the
//! guardian that the agent is.

use super::cpus::Cpus;
use super::{Agents, Kind};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The assignment of an agent process: its first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The format's version; an agent of another version refuses it.
    pub schema: u32,
    /// The enclave's name.
    pub name: String,
    /// The enclave's folder.
    pub folder: PathBuf,
    /// The backend that carries out its transactions.
    pub backend: Kind,
    /// The policy's name and parameters.
    pub policy: String,
    /// How the process is organised.
    pub agents: Agents,
    /// Whether the agent spins.
    pub spin: bool,
    /// Rules by which threads are LC or BE: `be=compact*`.
    pub classes: Vec<String>,
    /// A steering attachment, or a map of it or at a path, that says what threads serve: `7`, `7:work`.
    pub class_map: Option<String>,
    /// Where to write the report.
    pub status: PathBuf,
    /// The CPUs for which it decides; none, from an older guardian: all that the enclave has.
    #[serde(default)]
    pub cpus: Option<Cpus>,
}

/// The version of [`Assignment`].
pub const SCHEMA: u32 = 1;

/// An order of the guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Attach.
    Attach,
    /// Detach in favour of a successor, and end.
    Leave,
}

/// A message of the agent process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "say", content = "text")]
pub enum AgentReply {
    /// Waiting for [`Order::Attach`].
    Ready,
    /// Attached: threads are scheduled.
    Attached,
    /// Detached.
    Left,
    /// Cannot go on.
    Failed(String),
}

/// Returns the value as a line of JSON.
pub(crate) fn line(value: &impl Serialize) -> String {
    // Plain data can always be written.
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}
