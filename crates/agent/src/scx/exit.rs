//! When the kernel has ended the scheduler: why, and whose threads are to be given back.
//!
//! The kernel lets go of a scheduler for an error of it, for a thread that waited too long (its watchdog), or because somebody wants
//! that. Its threads run on as ordinary ones, but their class is still called sched_ext's, and their slots are free: so who was in the
//! enclave is noted before.

use super::threads::{ext_threads, make_ordinary};
use super::{Missing, Scx, ScxError, probe, programs};
use heddle_sys::processes::{self, Process};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first kind of an end that is an error (`SCX_EXIT_ERROR`); those below are somebody's wish.
const ERROR: u64 = 1024;
/// How often it is looked which of the noted processes have ended.
const PRUNE: Duration = Duration::from_secs(5);
/// How often threads are looked for that come while others are given back.
const ROUNDS: usize = 100;

/// How the kernel ended the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerExit {
    /// In the kernel's words.
    pub why: String,
    /// Somebody wanted it: sysrq-S, or whoever took the scheduler out.
    pub is_wanted: bool,
}

/// Processes that have, or had, threads in the enclave, by their numbers.
#[derive(Debug)]
pub(super) struct Noted {
    processes: BTreeMap<u32, Process>,
    pruned: Instant,
}

impl Default for Noted {
    fn default() -> Noted {
        Noted { processes: BTreeMap::new(), pruned: Instant::now() }
    }
}

impl Noted {
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

    /// Whether a process is one of them or descends from one.
    fn has(&self, pid: u32) -> bool {
        let ancestors = std::iter::successors(Some(pid), |&pid| processes::parent(pid));
        ancestors
            .take_while(|&pid| pid > 1)
            .any(|pid| self.processes.get(&pid).is_some_and(|process| process.lives()))
    }
}

impl Scx {
    /// How the kernel ended the scheduler; none while it has it.
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

    /// Notes who is in the enclave, for the moment at which the kernel ends the scheduler. Wants to be called several times a second.
    pub fn note_members(&self) {
        let mut noted = self.noted();
        self.slots().for_each(|slot| noted.add(self.memory.thread_tgid(slot)));
        noted.prune();
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The processes that had threads in the enclave when the kernel ended the scheduler, and have not been given back.
    #[must_use]
    pub fn members_left(&self) -> Vec<Process> {
        let noted = self.noted();
        let mut left: Vec<u32> = ext_threads().map(|(pid, _)| pid).collect();
        left.dedup();
        left.into_iter().filter(|&pid| noted.has(pid)).filter_map(Process::of).collect()
    }

    /// Gives back who was in the enclave when the kernel ended the scheduler. The number of threads. Those of other enclaves are their
    /// guardians' matter, who would not know any more whom to take in again.
    pub(super) fn give_back_left(&self) -> Result<usize, ScxError> {
        unpin_left()?;
        let noted = self.noted();
        Ok(make_all_ordinary(|pid| noted.has(pid)))
    }
}

/// Removes enclave `name`, whoever made it, and gives its threads back. The number of them.
///
/// # Errors
/// As [`Scx::remove`].
pub fn undo(name: &str) -> Result<usize, ScxError> {
    match Scx::open(name) {
        Ok(enclave) => enclave.remove(),
        Err(ScxError::NoEnclave(_)) => sweep_left(),
        Err(ScxError::Missing(Missing::SchedExt | Missing::Another(_))) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Takes what is left of a scheduler that the kernel has ended: pins, and threads whose class is called sched_ext's though nobody
/// schedules it, which makes them ordinary ones in all but the name. Nothing while there is a scheduler.
fn sweep_left() -> Result<usize, ScxError> {
    Ok(unpin_left()?.map_or(0, |_no_other| make_all_ordinary(|_| true)))
}

/// Takes away the pins of a scheduler that the kernel has ended; nobody makes another while the result is held. None if there is one.
fn unpin_left() -> Result<Option<programs::Lock>, ScxError> {
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
