//! Cleaning up after guardians that were killed.

use super::folder::{EnclaveEntry, Enclaves, Folder};
use super::keeper::Backends;
use super::{GuardianError, Record, tasks};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The result of cleaning up after one enclave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// The enclave.
    pub name: String,
    /// The number of threads given back to the default scheduler.
    pub threads: usize,
    /// What failed.
    pub failed: Option<String>,
}

/// Removes every enclave whose guardian is dead, with its threads and its agent. Does nothing without privileges.
pub fn clean(enclaves: &Enclaves, backends: &dyn Backends) -> Vec<Cleaned> {
    let dead: Vec<EnclaveEntry> =
        enclaves.list().into_iter().filter(|listed| listed.dead).collect();
    if dead.is_empty() && enclaves.unwritten().is_empty() {
        return Vec::new();
    }
    // Two processes that clean at once, or one that makes an enclave of the same name, would undo each other's
    // work.
    let Ok(_lock) = enclaves.lock() else { return Vec::new() };
    enclaves.unwritten().iter().for_each(Folder::remove);
    dead.iter()
        .filter(|listed| listed.folder.is_dead())
        .map(|listed| one(listed, backends))
        .collect()
}

/// Returns a line for the user on what was cleaned.
#[must_use]
pub fn cleaned(what: &Cleaned) -> String {
    let Cleaned { name, threads, failed } = what;
    match failed {
        None => format!(
            "the guardian of enclave `{name}` had died: removed what it left ({threads} threads given back)"
        ),
        Some(why) => format!(
            "the guardian of enclave `{name}` had died, and what it left could not all be removed: {why}"
        ),
    }
}

fn one(listed: &EnclaveEntry, backends: &dyn Backends) -> Cleaned {
    let record = &listed.record;
    end_agent(record);
    let undone = backends.undo(record.backend, &record.name);
    if undone.is_ok() {
        listed.folder.remove();
    }
    let failed = undone.as_ref().err().map(GuardianError::to_string);
    Cleaned { name: record.name.clone(), threads: undone.unwrap_or(0), failed }
}

/// Ends the agent of a dead guardian. An agent normally ends with its guardian, but not if it is stopped or hangs.
/// Its number may belong to another process by now, so the process is held before it is compared with the record. A
/// record of an older Heddle does not say when the agent began; then only a process with an agent's command line is
/// ended.
fn end_agent(record: &Record) {
    let Some(pid) = record.agent.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw)
    else {
        return;
    };
    let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let number = pid.as_raw_nonzero().get().cast_unsigned();
    let is_it = match record.agent_began {
        Some(when) => tasks::start_time(number) == Some(when),
        None => tasks::is_agent(number, record.uid),
    };
    if is_it {
        // If this fails, it has ended already.
        let _ = pidfd_send_signal(held, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::tests::record;
    use super::*;
    use std::process::{Child, Command};

    /// A process that looks like an agent by its command.
    fn lookalike() -> Child {
        let command = Command::new("sh")
            .args(["-c", "sleep 1000; :", "heddle", "agent", super::super::AGENT_PROCESS])
            .spawn();
        let child = command.unwrap();
        while !tasks::command(child.id()).contains(super::super::AGENT_PROCESS) {}
        child
    }

    fn lives(child: &mut Child) -> bool {
        std::thread::sleep(std::time::Duration::from_millis(20));
        child.try_wait().unwrap().is_none()
    }

    #[test]
    fn only_the_agent_itself_is_ended_not_a_process_with_its_reused_number() {
        let mut child = lookalike();
        let began = tasks::start_time(child.id()).unwrap();
        let of =
            |when, uid| Record { agent: Some(child.id()), agent_began: when, uid, ..record("one") };
        let me = rustix::process::getuid().as_raw();
        for (what, other) in
            [("began later", of(Some(began - 1), me)), ("another user's", of(None, me + 1))]
        {
            end_agent(&other);
            assert!(tasks::is_alive(child.id(), Some(began)), "{what}");
        }
        let (ours, number) = (of(Some(began), me), child.id());
        assert!(lives(&mut child));
        end_agent(&ours);
        child.wait().unwrap();
        assert!(!tasks::is_alive(number, Some(began)));
    }
}
