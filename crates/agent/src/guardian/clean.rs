//! Cleaning up after guardians that were killed.

use super::folder::{Enclaves, Folder, Listed};
use super::keeper::Backends;
use super::{GuardianError, Record, tasks};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

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
    if dead.is_empty() && enclaves.unwritten().is_empty() {
        return Vec::new();
    }
    // Two that clean at once, or one that makes an enclave of the same name, would undo each other.
    let Ok(_lock) = enclaves.lock() else { return Vec::new() };
    enclaves.unwritten().iter().for_each(Folder::remove);
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
    end_agent(record);
    let undone = backends.undo(record.backend, &record.name);
    if undone.is_ok() {
        listed.folder.remove();
    }
    let failed = undone.as_ref().err().map(GuardianError::to_string);
    Cleaned { name: record.name.clone(), threads: undone.unwrap_or(0), failed }
}

/// An agent follows its guardian; one that is stopped or hangs does not. The number may be another's by now, so the process is held before
/// it is compared with what was written down. What an older Heddle wrote does not say when the agent began, and ends nobody but an
/// agent by its command.
fn end_agent(record: &Record) {
    let Some(pid) = record.agent.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw)
    else {
        return;
    };
    let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let number = pid.as_raw_nonzero().get().cast_unsigned();
    let is_it = match record.agent_began {
        Some(when) => tasks::began(number) == Some(when),
        None => tasks::is_agent(number, record.uid),
    };
    if is_it {
        // Gone already, if that fails.
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
    fn only_the_agent_itself_is_ended_and_nobody_who_has_its_number_now() {
        let mut child = lookalike();
        let began = tasks::began(child.id()).unwrap();
        let of =
            |when, uid| Record { agent: Some(child.id()), agent_began: when, uid, ..record("one") };
        let me = rustix::process::getuid().as_raw();
        for (what, other) in
            [("began later", of(Some(began - 1), me)), ("another user's", of(None, me + 1))]
        {
            end_agent(&other);
            assert!(tasks::lives(child.id(), Some(began)), "{what}");
        }
        let (ours, number) = (of(Some(began), me), child.id());
        assert!(lives(&mut child));
        end_agent(&ours);
        child.wait().unwrap();
        assert!(!tasks::lives(number, Some(began)));
    }
}
