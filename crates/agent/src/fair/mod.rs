//! The backend over the kernel's fair scheduler. Priority classes, shares and slices of a policy become nice
//! values, slices (Linux 6.12), SCHED_IDLE and weights of scheduling groups. There are no decisions for single
//! wakeups; the agent only finds new threads, sets them, and makes sure that no best-effort thread starves.
//! `docs/design/fair.md` explains the design.
//!
//! - **F1** The original settings of a thread or group are on file before they are changed (`journal`, J1), and
//!   restored by whichever process finds the enclave without its own.
//! - **F2** A setting that another program has made since stays: it is neither changed again nor undone. Only a
//!   raised nice value is taken for what it says, that the thread is less urgent.
//! - **F3** Real-time threads and those of a BPF scheduler are left alone.
//! - **F4** A scheduling group is raised, never lowered.

mod groups;
mod journal;
mod levels;
mod members;
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

/// The part of a report that says what the agent has set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FairReport {
    /// Threads by level: `lc`, `be`; `left` for threads that are left alone.
    pub threads: BTreeMap<String, usize>,
    /// Whether best-effort threads have got no CPU for long, and are ordinary ones until others leave them time.
    pub be_raised: bool,
    /// Scheduling groups that are raised.
    pub groups: Vec<String>,
    /// The last failure to set something.
    pub failed: Option<String>,
}

/// The guardian's handle of an enclave. Dropping it undoes and removes the enclave.
#[derive(Debug)]
pub struct Fair {
    journal: Journal,
}

/// Checks whether threads can be set here.
///
/// # Errors
/// What is missing, as a sentence.
pub fn probe() -> Result<(), String> {
    let raise = || {
        let own = scheduling::attributes(0)?;
        scheduling::set_attributes(0, Attributes { nice: levels::LC_NICE, ..own })
    };
    let asking = std::thread::Builder::new().spawn(raise);
    let done = asking.and_then(|asking| {
        asking.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    });
    done.map_err(|error| format!("lowering nice values needs root or CAP_SYS_NICE ({error})"))
}

/// Whether the kernel has slices, as Linux 6.12 and later do.
#[must_use]
pub fn has_slices() -> bool {
    levels::default_slice() != Ns::ZERO
}

impl Fair {
    /// Makes an enclave with a journal in `folder`.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn create(folder: &Path, spec: &EnclaveSpec) -> io::Result<Fair> {
        let journal = Journal::at(folder);
        journal.create(&spec.cpus)?;
        Ok(Fair { journal })
    }

    /// Puts all threads of a process into the enclave: confines them to its CPUs. The agent does the rest. Returns
    /// their number; zero if there is no such process.
    ///
    /// # Errors
    /// `EPERM`, or the journal cannot be written.
    pub fn join(&self, pid: u32) -> io::Result<usize> {
        let Some(process) = Process::of(pid) else { return Ok(0) };
        let contents = self.journal.read()?;
        if let Some(was) = contents.inherited(process) {
            // In already, through an ancestor: its present attributes may be the ancestor's level.
            self.journal.append(&[Entry::Thread(ThreadEntry::new(process, process, &was))])?;
            return Ok(heddle_sys::processes::threads(pid).len());
        }
        let (mut seen, mut joined) = (BTreeSet::new(), 0);
        loop {
            // Threads made meanwhile by a thread that is not in yet.
            let new: Vec<Process> = heddle_sys::processes::threads(pid)
                .into_iter()
                .filter(|thread| seen.insert(*thread))
                .collect();
            if new.is_empty() {
                return Ok(joined);
            }
            joined += threads::record_and_confine(&self.journal, &contents, process, &new)?;
        }
    }

    /// Returns the processes that have threads in the enclave.
    pub fn members(&self) -> Vec<Process> {
        let members = self.journal.read().unwrap_or_default().members;
        members.into_keys().filter(|process| process.lives()).collect()
    }

    /// Restores all threads and groups. Returns the number of threads. May be called again.
    ///
    /// # Errors
    /// The first thing that could not be restored; all others are.
    pub fn give_back(&self) -> io::Result<usize> {
        undo::undo(&self.journal)
    }

    /// Undoes and removes an enclave whose guardian and agent are dead.
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

/// Returns the enclave's threads by level, as `status` shows them; none if this process may not read them.
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
