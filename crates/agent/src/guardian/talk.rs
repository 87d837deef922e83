//! What guardian and agent process say to each other: lines of JSON over the agent's standard input and output.
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
//! The end of its standard input tells the agent that its guardian is dead; the end of its output tells the guardian the same of it.

use super::{Agents, Kind};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What an agent process is to do: its first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Of this format; an agent of another version says so.
    pub schema: u32,
    /// The enclave.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// What carries out its transactions.
    pub backend: Kind,
    /// Name and parameters.
    pub policy: String,
    /// How it is organised.
    pub agents: Agents,
    /// Whether it spins.
    pub spin: bool,
    /// Rules by which threads are LC or BE: `be=compact*`.
    pub classes: Vec<String>,
    /// A steering attachment whose map says what threads serve.
    pub class_map: Option<String>,
    /// Where it reports.
    pub status: PathBuf,
}

/// Of [`Assignment`].
pub const SCHEMA: u32 = 1;

/// What the guardian says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Begin.
    Attach,
    /// Detach for a successor, and end.
    Leave,
}

/// What the agent process says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "say", content = "text")]
pub enum Said {
    /// It waits for [`Order::Attach`].
    Ready,
    /// Threads are scheduled.
    Attached,
    /// Detached.
    Left,
    /// It cannot go on.
    Failed(String),
}

/// A line.
pub(crate) fn line(value: &impl Serialize) -> String {
    // Plain data always can be written.
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}
