//! Cleaning up after guardians that were killed.

use super::folder::{Enclaves, Listed};
use super::keeper::Backends;
use super::{GuardianError, tasks};
use rustix::process::{Pid, Signal, kill_process};

/// What was cleaned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// The enclave.
    pub name: String,
    /// Threads that went back to the default scheduler now.
    pub threads: usize,
    /// What did not work.
    pub failed: Option<String>,
}

/// Removes every enclave whose guardian is dead, its threads and its agent. Without privileges that is nothing.
pub fn clean(enclaves: &Enclaves, backends: &dyn Backends) -> Vec<Cleaned> {
    let dead: Vec<Listed> = enclaves.list().into_iter().filter(|listed| listed.dead).collect();
    if dead.is_empty() {
        return Vec::new();
    }
    // Two that clean at once, or one that makes an enclave of the same name, would undo each other.
    let Ok(_lock) = enclaves.lock() else { return Vec::new() };
    dead.iter()
        .filter(|listed| listed.folder.is_dead())
        .map(|listed| one(listed, backends))
        .collect()
}

/// A line for the user on what was cleaned.
#[must_use]
pub fn cleaned(what: &Cleaned) -> String {
    let Cleaned { name, threads, failed } = what;
    match failed {
        None => format!(
            "the guardian of enclave `{name}` had died: removed what it left ({threads} threads given back)"
        ),
        Some(why) => format!(
            "the guardian of enclave `{name}` had died, and not all that it left could be removed: {why}"
        ),
    }
}

fn one(listed: &Listed, backends: &dyn Backends) -> Cleaned {
    let record = &listed.record;
    end_agent(record.agent);
    let undone = backends.undo(record.backend, &record.name);
    if undone.is_ok() {
        listed.folder.remove();
    }
    let failed = undone.as_ref().err().map(GuardianError::to_string);
    Cleaned { name: record.name.clone(), threads: undone.unwrap_or(0), failed }
}

/// An agent follows its guardian; one that is stopped or hangs does not. The number may be another's by now: only a process that is an
/// agent by its command is ended.
fn end_agent(agent: Option<u32>) {
    let Some(pid) = agent else { return };
    if !tasks::command(pid).contains(super::AGENT_PROCESS) {
        return;
    }
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // Gone already, if that fails.
        let _ = kill_process(pid, Signal::KILL);
    }
}
