//! The backend over the kernel's fair scheduler: what a policy says by priority classes, shares and slices, the kernel is told by nice
//! values, slices (Linux 6.12), SCHED_IDLE and the weights of scheduling groups. Nobody decides from thread to thread; the agent only watches
//! for threads that come, sets them, and sees to it that no best-effort thread starves. `docs/design/fair.md` says why it is as it is.
//!
//! - **F1** What a thread or a group was before is on file before it is changed (`journal`, J1), and undone by whoever finds the
//!   enclave without its processes.
//! - **F2** What somebody else has set since, stays: it is neither changed again nor undone. Only a nice value that was raised is taken for
//!   what it says, that the thread is less urgent.
//! - **F3** Threads that are real-time, or another BPF scheduler's, are left alone.
//! - **F4** A scheduling group is raised, never lowered.

mod groups;
mod journal;
mod levels;
mod threads;
mod undo;
mod watch;

pub(crate) use levels::cannot_express;
pub(crate) use watch::{WatchOptions, serve};

use crate::EnclaveSpec;
use heddle_core::Ns;
use heddle_sys::processes::Process;
use heddle_sys::scheduling::{self, Attributes};
use journal::{Entry, Journal, ThreadEntry};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Of a report: what the agent has set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FairReport {
    /// Threads by what they are set to: `lc`, `be`; `left` for those that were left alone.
    pub threads: BTreeMap<String, usize>,
    /// Whether best-effort threads have long had nothing, and are ordinary ones for that until others leave them time.
    pub be_raised: bool,
    /// Scheduling groups that were raised.
    pub groups: Vec<String>,
    /// What could not be set, the last failure.
    pub failed: Option<String>,
}

/// An enclave, in its guardian's hands. It is undone and removed when this is dropped.
#[derive(Debug)]
pub struct Fair {
    journal: Journal,
}

/// Whether threads can be set here.
///
/// # Errors
/// A sentence on what is missing.
pub fn probe() -> Result<(), String> {
    let raise = || {
        let own = scheduling::attributes(0)?;
        scheduling::set_attributes(0, Attributes { nice: levels::LC_NICE, ..own })
    };
    let asking = std::thread::Builder::new().spawn(raise);
    let done = asking.and_then(|asking| {
        asking.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    });
    done.map_err(|error| format!("it takes root or CAP_SYS_NICE to lower nice values ({error})"))
}

/// Whether the kernel knows slices, which it does from Linux 6.12 on.
#[must_use]
pub fn has_slices() -> bool {
    levels::default_slice() != Ns::ZERO
}

impl Fair {
    /// Makes an enclave whose journal is in `folder`.
    ///
    /// # Errors
    /// The disk's.
    pub fn create(folder: &Path, spec: &EnclaveSpec) -> io::Result<Fair> {
        let journal = Journal::at(folder);
        journal.create(&spec.cpus)?;
        Ok(Fair { journal })
    }

    /// Puts all threads of a process in: confines them to the enclave's CPUs. The agent does the rest. The number of those that came; none
    /// where there is no such process.
    ///
    /// # Errors
    /// `EPERM`; the disk's.
    pub fn join(&self, pid: u32) -> io::Result<usize> {
        let Some(process) = Process::of(pid) else { return Ok(0) };
        let contents = self.journal.read()?;
        if let Some(was) = contents.inherited(process) {
            // In already, by an ancestor: what it has now may be what that was set to.
            self.journal.append(&[Entry::Thread(ThreadEntry::new(process, process, &was))])?;
            return Ok(heddle_sys::processes::threads(pid).len());
        }
        let (mut seen, mut joined) = (BTreeSet::new(), 0);
        loop {
            // Threads that are made meanwhile by one that is not in yet.
            let new: Vec<Process> = heddle_sys::processes::threads(pid)
                .into_iter()
                .filter(|thread| seen.insert(*thread))
                .collect();
            if new.is_empty() {
                return Ok(joined);
            }
            joined += threads::bring_in(&self.journal, &contents, process, &new)?;
        }
    }

    /// The processes that have threads in it.
    pub fn members(&self) -> Vec<Process> {
        let members = self.journal.read().unwrap_or_default().members;
        members.into_keys().filter(|process| process.lives()).collect()
    }

    /// Sets all threads and groups to what they were. The number of threads. May be called again.
    ///
    /// # Errors
    /// What could not be set, all others being done.
    pub fn give_back(&self) -> io::Result<usize> {
        undo::undo(&self.journal)
    }

    /// The same for an enclave whose guardian and agent are dead, which then is removed.
    ///
    /// # Errors
    /// As [`Fair::give_back`].
    pub fn undo(folder: &Path) -> io::Result<usize> {
        let journal = Journal::at(folder);
        let threads = undo::undo(&journal)?;
        journal.remove();
        Ok(threads)
    }
}

impl Drop for Fair {
    fn drop(&mut self) {
        match self.give_back() {
            Ok(_) => self.journal.remove(),
            Err(error) => eprintln!("heddle: not all threads could be given back: {error}"),
        }
    }
}

/// The enclave's threads by what they are set to, as `status` shows them; none where this process may not look.
#[must_use]
pub fn states(folder: &Path) -> Option<BTreeMap<String, usize>> {
    let contents = Journal::at(folder).read().ok()?;
    let mut states = BTreeMap::new();
    let members = contents.members.keys().filter(|process| process.lives());
    for thread in members.flat_map(|process| heddle_sys::processes::threads(process.pid)) {
        let Ok(now) = scheduling::attributes(thread.pid) else { continue };
        let state = match now.scheduling.class {
            scheduling::Class::Idle => "idle".into(),
            _ => format!("nice {}", now.nice),
        };
        *states.entry(state).or_insert(0) += 1;
    }
    Some(states)
}

#[cfg(test)]
mod tests;
