//! What `status` shows.

use super::Place;
use super::share::{SHARE, Spent};
use crate::fair::FairReport;
use crate::model::{Outcome, Phase};
use crate::policy::{Counts, Histogram, Tally};
use crate::{Backend, Traits};
use heddle_core::Ns;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io};

/// How often it is written.
const EVERY: Duration = Duration::from_millis(100);

/// What the active agent leaves for the thread that writes. All of it has its memory from the start.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub tally: Tally,
    pub waiting: Vec<usize>,
    pub at: Ns,
}

/// Between agents and the thread that writes.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// The writer would like a new snapshot.
    wanted: AtomicBool,
    snapshot: Mutex<Snapshot>,
    closed: Mutex<bool>,
    bell: Condvar,
}

impl Board {
    /// A board for so many policy queues.
    pub fn new(queues: usize) -> Board {
        let snapshot = Snapshot { waiting: Vec::with_capacity(queues), ..Snapshot::default() };
        Board { snapshot: Mutex::new(snapshot), ..Board::default() }
    }

    /// An agent passes: fills in the snapshot if one is wanted and nobody reads it just then (A2).
    pub fn pass(&self, fill: impl FnOnce(&mut Snapshot)) {
        if !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(mut snapshot) = self.snapshot.try_lock() {
            fill(&mut snapshot);
            self.wanted.store(false, Ordering::Relaxed);
        }
    }

    /// No more will come.
    pub fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_all();
    }

    /// The writer's work: a report to `path`, ten times a second, until the board is closed.
    pub fn write(&self, about: &About, spent: &[Spent], backend: &dyn Backend, path: &Path) {
        loop {
            self.wanted.store(true, Ordering::Relaxed);
            let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.bell.wait_timeout_while(closed, EVERY, |closed| !*closed);
            let is_over = *waited.unwrap_or_else(PoisonError::into_inner).0;
            let report = {
                let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
                about.report(&snapshot, spent, backend)
            };
            // A folder that is gone is no reason to stop scheduling.
            let _ = save(&report, path);
            if is_over {
                return;
            }
        }
    }
}

/// Whole or not at all: readers never see a part.
pub(crate) fn save(report: &Report, path: &Path) -> io::Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, serde_json::to_vec(report)?)?;
    fs::rename(&beside, path)
}

/// What does not change.
#[derive(Debug)]
pub(super) struct About {
    pub policy: String,
    pub place: Place,
    pub traits: Traits,
}

/// What an agent has seen and done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name and parameters.
    pub policy: String,
    /// `central`, `spinning` or `local`; `watching` over the kernel's fair scheduler, which decides itself.
    pub agents: String,
    /// The backend's name.
    pub backend: String,
    /// When, by the backend's clock.
    pub at_ns: u64,
    /// `waiting`, `active`, `orphan`.
    pub phase: String,
    /// Threads in the enclave.
    pub threads: u64,
    /// The system's numbers of the enclave's CPUs.
    pub cpus: Vec<u32>,
    /// Threads in each of the policy's queues: one for all CPUs, or one each.
    pub waiting: Vec<usize>,
    /// Transactions by what came of them, without those that never happened.
    pub outcomes: BTreeMap<String, u64>,
    /// Transactions that succeeded.
    pub committed: u64,
    /// Transactions that failed.
    pub failed: u64,
    /// Messages read.
    pub messages: u64,
    /// Rounds.
    pub rounds: u64,
    /// Group commits.
    pub groups: u64,
    /// Threads taken off their CPUs for others.
    pub preemptions: u64,
    /// Threads taken from other CPUs' queues.
    pub steals: u64,
    /// Proposals set aside because the thread may not run there.
    pub set_aside: u64,
    /// How often all status words were read anew.
    pub adoptions: u64,
    /// CPU time that the agents have taken; none where one spins, which takes a CPU.
    pub agents_cpu_ns: Option<u64>,
    /// What each takes of a CPU at most, in percent.
    pub share_limit: u64,
    /// How often one of them paused because it had used up its share.
    pub pauses: u64,
    /// By class: how long threads waited for a CPU after a wakeup.
    pub classes: Vec<ClassReport>,
    /// Over the kernel's fair scheduler: what was set.
    #[serde(default)]
    pub fair: Option<FairReport>,
}

/// Of one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassReport {
    /// Its number; the last stands for all beyond.
    pub class: usize,
    /// From a wakeup to the CPU.
    pub delay: Delay,
}

/// A distribution of durations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// How many.
    pub count: u64,
    /// What half of them do not exceed, in ns; each within an eighth.
    pub p50_ns: u64,
    /// Nine tenths.
    pub p90_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// 99.9 %.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl From<&Histogram> for Delay {
    fn from(times: &Histogram) -> Delay {
        let at = |share| times.quantile(share).0;
        Delay {
            count: times.len(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: times.longest().0,
        }
    }
}

impl About {
    fn report(&self, snapshot: &Snapshot, spent: &[Spent], backend: &dyn Backend) -> Report {
        let Counts { messages, rounds, groups, preemptions, steals, set_aside, adoptions, .. } =
            snapshot.tally.counts;
        let enclave = backend.enclave();
        let spins = self.place == Place::Central { spin: true };
        Report {
            policy: self.policy.clone(),
            agents: agents(self.place).into(),
            backend: self.traits.name.into(),
            at_ns: snapshot.at.0,
            phase: phase(enclave.phase).into(),
            threads: enclave.threads,
            cpus: backend.cpus().iter().map(|cpu| cpu.os_id).collect(),
            waiting: snapshot.waiting.clone(),
            outcomes: outcomes(&snapshot.tally.counts),
            committed: snapshot.tally.counts.committed(),
            failed: snapshot.tally.counts.failed(),
            messages,
            rounds,
            groups,
            preemptions,
            steals,
            set_aside,
            adoptions,
            agents_cpu_ns: (!spins).then(|| spent.iter().map(|spent| spent.cpu().0).sum()),
            share_limit: if spins { 100 } else { SHARE },
            pauses: spent.iter().map(Spent::pauses).sum(),
            classes: classes(&snapshot.tally),
            fair: None,
        }
    }
}

fn agents(place: Place) -> &'static str {
    match place {
        Place::Central { spin: false } => "central",
        Place::Central { spin: true } => "spinning",
        Place::Local => "local",
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Free => "free",
        Phase::Waiting => "waiting",
        Phase::Active => "active",
        Phase::Orphan => "orphan",
    }
}

fn outcomes(counts: &Counts) -> BTreeMap<String, u64> {
    let named = Outcome::ALL.iter().zip(counts.outcomes);
    named
        .filter(|&(_, count)| count > 0)
        .map(|(what, count)| (format!("{what:?}"), count))
        .collect()
}

fn classes(tally: &Tally) -> Vec<ClassReport> {
    let all = tally.delays.iter().enumerate().filter(|(_, times)| !times.is_empty());
    all.map(|(class, times)| ClassReport { class, delay: times.into() }).collect()
}
