//! The end of the scheduler by the kernel: the reason, and the threads to give back.
//!
//! The kernel ends a scheduler because of an error, because a thread waited too long (its watchdog), or on request.
//! The threads run on as ordinary ones, but keep sched_ext's class in name, and their slots are free. So the
//! enclave's members are recorded while it works.

use super::threads::{ext_threads, make_ordinary};
use super::{Missing, Scx, ScxError, probe, programs};
use heddle_sys::processes::{self, Process};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first exit kind that is an error (`SCX_EXIT_ERROR`); those below it are requests.
const ERROR: u64 = 1024;
/// How often to drop recorded processes that have ended.
const PRUNE: Duration = Duration::from_secs(5);
/// How often to search for threads that appear while others are given back.
const ROUNDS: usize = 100;

/// How the kernel ended the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerExit {
    /// The kernel's reason.
    pub why: String,
    /// It was requested: by sysrq-S, or by unregistering the scheduler.
    pub is_wanted: bool,
}

/// Processes that have, or had, threads in the enclave, by number.
#[derive(Debug)]
pub(super) struct Members {
    processes: BTreeMap<u32, Process>,
    pruned: Instant,
}

impl Default for Members {
    fn default() -> Members {
        Members { processes: BTreeMap::new(), pruned: Instant::now() }
    }
}

impl Members {
    fn add(&mut self, pid: u32) {
        if !self.processes.contains_key(&pid)
            && let Some(process) = Process::of(pid)
        {
            self.processes.insert(pid, process);
        }
    }

    fn prune(&mut self) {
        if self.pruned.elapsed() >= PRUNE {
            self.pruned = Instant::now();
            self.processes.retain(|_, process| process.lives());
        }
    }

    /// Whether a process is a member or descends from one.
    fn has(&self, pid: u32) -> bool {
        let ancestors = std::iter::successors(Some(pid), |&pid| processes::parent(pid));
        ancestors
            .take_while(|&pid| pid > 1)
            .any(|pid| self.processes.get(&pid).is_some_and(|process| process.lives()))
    }
}

impl Scx {
    /// Returns how the kernel ended the scheduler; none while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<SchedulerExit> {
        let kind = self.memory.exit_code();
        (kind != 0).then(|| {
            let why = match self.memory.last_words() {
                (reason, details) if details.is_empty() => reason,
                (reason, details) => format!("{reason}: {details}"),
            };
            SchedulerExit { why, is_wanted: kind < ERROR }
        })
    }

    /// Records the enclave's members, for the time after the kernel ends the scheduler. To be called several times
    /// a second.
    pub fn record_members(&self) {
        let mut members = self.members();
        self.slots().for_each(|slot| members.add(self.memory.thread_tgid(slot)));
        members.prune();
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the processes that had threads in the enclave when the kernel ended the scheduler, and were not
    /// given back.
    #[must_use]
    pub fn remaining_members(&self) -> Vec<Process> {
        let members = self.members();
        let mut left: Vec<u32> = ext_threads().map(|(pid, _)| pid).collect();
        left.dedup();
        left.into_iter().filter(|&pid| members.has(pid)).filter_map(Process::of).collect()
    }

    /// Gives back the enclave's members after the kernel ended the scheduler. Returns the number of threads.
    /// Members of other enclaves are left to their guardians, which would otherwise not know which processes to
    /// join again.
    pub(super) fn give_back_remaining(&self) -> Result<usize, ScxError> {
        unpin_remains()?;
        let members = self.members();
        Ok(make_all_ordinary(|pid| members.has(pid)))
    }
}

/// Removes enclave `name`, whichever process made it, and gives its threads back. Returns their number.
///
/// # Errors
/// As [`Scx::remove`].
pub fn undo(name: &str) -> Result<usize, ScxError> {
    match Scx::open(name) {
        Ok(enclave) => enclave.remove(),
        Err(ScxError::NoEnclave(_)) => sweep_remains(),
        Err(ScxError::Missing(Missing::SchedExt | Missing::Another(_))) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Removes the remains of a scheduler that the kernel has ended: pins, and threads that are sched_ext's only in
/// name, which become ordinary ones. Does nothing while there is a scheduler.
fn sweep_remains() -> Result<usize, ScxError> {
    Ok(unpin_remains()?.map_or(0, |_no_other| make_all_ordinary(|_| true)))
}

/// Removes the pins of a scheduler that the kernel has ended. No other is made while the result is held. None if
/// there is one.
fn unpin_remains() -> Result<Option<programs::Lock>, ScxError> {
    let lock = programs::lock()?;
    if probe::loaded().is_some() {
        return Ok(None);
    }
    programs::unload(&lock);
    Ok(Some(lock))
}

fn make_all_ordinary(whose: impl Fn(u32) -> bool) -> usize {
    let mut all = 0;
    for _ in 0..ROUNDS {
        let found = ext_threads().filter(|&(pid, _)| whose(pid));
        let made = found.filter(|&(_, tid)| make_ordinary(tid)).count();
        all += made;
        if made == 0 {
            break;
        }
    }
    all
}
