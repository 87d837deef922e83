//! The report that `heddle agent status` shows.

use super::share::{SHARE, Spent};
use super::{AgentMode, ReportPage};
use crate::fair::FairReport;
use crate::model::{Outcome, Phase};
use crate::policy::{Counts, Delays, Tally};
use crate::{Backend, Traits};
use heddle_core::Ns;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io};

/// How often the report is written.
const EVERY: Duration = Duration::from_millis(100);

/// What the active agent leaves for the writing thread. Its memory is allocated at the start.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub tally: Tally,
    pub waiting: Vec<usize>,
    pub at: Ns,
}

/// Passes snapshots from the agents to the writing thread.
#[derive(Debug, Default)]
pub(super) struct StatusBoard {
    /// The writer wants a new snapshot.
    wanted: AtomicBool,
    snapshot: Mutex<Snapshot>,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl StatusBoard {
    /// Creates a board for so many policy queues.
    pub fn new(queues: usize) -> StatusBoard {
        let snapshot = Snapshot { waiting: Vec::with_capacity(queues), ..Snapshot::default() };
        StatusBoard { snapshot: Mutex::new(snapshot), ..StatusBoard::default() }
    }

    /// Called by an agent: fills in the snapshot if one is wanted and the writer does not hold it (A2).
    pub fn pass(&self, fill: impl FnOnce(&mut Snapshot)) {
        if !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(mut snapshot) = self.snapshot.try_lock() {
            fill(&mut snapshot);
            self.wanted.store(false, Ordering::Relaxed);
        }
    }

    /// Ends the writer.
    pub fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Runs the writer: a report to `path` and to the page, ten times a second, until the board is closed.
    pub fn write(&self, info: &AgentInfo, spent: &[Spent], backend: &dyn Backend, path: &Path) {
        let page = ReportPage::new(info.enclave.as_deref(), &info.policy);
        loop {
            self.wanted.store(true, Ordering::Relaxed);
            let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(closed, EVERY, |closed| !*closed);
            let is_over = *waited.unwrap_or_else(PoisonError::into_inner).0;
            let report = {
                let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
                info.report(&snapshot, spent, backend)
            };
            page.show(&report);
            // A missing folder is no reason to stop scheduling.
            let _ = save(&report, path);
            if is_over {
                return;
            }
        }
    }
}

/// Saves the report atomically: readers never see a part.
pub(crate) fn save(report: &Report, path: &Path) -> io::Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, serde_json::to_vec(report)?)?;
    fs::rename(&beside, path)
}

/// The constant part of the report.
#[derive(Debug)]
pub(super) struct AgentInfo {
    pub policy: String,
    pub enclave: Option<String>,
    pub mode: AgentMode,
    pub traits: Traits,
}

/// What an agent has seen and done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The policy's name and parameters.
    pub policy: String,
    /// `central`, `spinning` or `local`; `watching` over the kernel's fair scheduler, which decides itself.
    pub agents: String,
    /// The backend's name.
    pub backend: String,
    /// The time of the report, by the backend's clock.
    pub at_ns: u64,
    /// `waiting`, `active`, `orphan`.
    pub phase: String,
    /// Threads in the enclave.
    pub threads: u64,
    /// The system's numbers of the enclave's CPUs.
    pub cpus: Vec<u32>,
    /// Threads in each of the policy's queues: one for all CPUs, or one each.
    pub waiting: Vec<usize>,
    /// Transactions by outcome, without outcomes that never occurred.
    pub outcomes: BTreeMap<String, u64>,
    /// Transactions that succeeded.
    pub committed: u64,
    /// Transactions that failed.
    pub failed: u64,
    /// Threads that CPUs took on their own, because the agent had offered them.
    #[serde(default)]
    pub taken: u64,
    /// What the enclave's `pick_next` did, if it has one.
    #[serde(default)]
    pub pick_next: Option<PickNextReport>,
    /// Messages read.
    pub messages: u64,
    /// Messages for which a queue had no room. What they said was read from the status words.
    #[serde(default)]
    pub lost: u64,
    /// Rounds.
    pub rounds: u64,
    /// Group commits.
    pub groups: u64,
    /// Threads taken off their CPUs for others.
    pub preemptions: u64,
    /// Threads taken from other CPUs' queues.
    pub steals: u64,
    /// Proposals deferred because the thread may not run there.
    #[serde(rename = "set_aside")]
    pub deferred: u64,
    /// How often all status words were read again.
    pub adoptions: u64,
    /// CPU time that the agents have used; none if one spins, which uses a whole CPU.
    pub agents_cpu_ns: Option<u64>,
    /// The most that each agent takes of a CPU, in percent.
    pub share_limit: u64,
    /// How often an agent paused because it had used up its share.
    pub pauses: u64,
    /// By class: how long threads waited for a CPU after a wakeup.
    pub classes: Vec<ClassReport>,
    /// Over the kernel's fair scheduler: what was set.
    #[serde(default)]
    pub fair: Option<FairReport>,
}

/// What a `pick_next` did since its enclave was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PickNextReport {
    /// Threads that CPUs took because it said so.
    pub picked: u64,
    /// Times that it left a CPU to the agent.
    pub declined: u64,
    /// Wrong answers: the CPU took the first thread.
    pub misjudged: u64,
}

/// The report of one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassReport {
    /// Its number; the last stands for all beyond.
    pub class: usize,
    /// Times from a wakeup to the CPU.
    pub delay: Delay,
    /// The same as a histogram: the upper end of each bucket that is not empty, in ns, and its count.
    #[serde(default)]
    pub buckets: Vec<(u64, u64)>,
}

/// A distribution of durations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// The number of durations.
    pub count: u64,
    /// The median, in ns; each quantile is exact within an eighth.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl From<&Delays> for Delay {
    fn from(delays: &Delays) -> Delay {
        let at = |share| delays.quantile(share).0;
        Delay {
            count: delays.times.count(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: delays.longest.0,
        }
    }
}

impl AgentInfo {
    fn report(&self, snapshot: &Snapshot, spent: &[Spent], backend: &dyn Backend) -> Report {
        let counts = &snapshot.tally.counts;
        let enclave = backend.enclave();
        let spins = self.mode == AgentMode::Central { spin: true };
        Report {
            policy: self.policy.clone(),
            agents: agents(self.mode).into(),
            backend: self.traits.name.into(),
            at_ns: snapshot.at.0,
            phase: phase(enclave.phase).into(),
            threads: enclave.threads,
            cpus: backend.cpus().iter().map(|cpu| cpu.os_id).collect(),
            waiting: snapshot.waiting.clone(),
            outcomes: outcomes(counts),
            committed: counts.committed(),
            failed: counts.failed(),
            taken: counts.taken,
            pick_next: self.traits.picks.then_some(PickNextReport {
                picked: enclave.picked,
                declined: enclave.declined,
                misjudged: enclave.misjudged,
            }),
            messages: counts.messages,
            lost: counts.lost,
            rounds: counts.rounds,
            groups: counts.groups,
            preemptions: counts.preemptions,
            steals: counts.steals,
            deferred: counts.deferred,
            adoptions: counts.adoptions,
            agents_cpu_ns: (!spins).then(|| spent.iter().map(|spent| spent.cpu().0).sum()),
            share_limit: if spins { 100 } else { SHARE },
            pauses: spent.iter().map(Spent::pauses).sum(),
            classes: classes(&snapshot.tally),
            fair: None,
        }
    }
}

fn agents(mode: AgentMode) -> &'static str {
    match mode {
        AgentMode::Central { spin: false } => "central",
        AgentMode::Central { spin: true } => "spinning",
        AgentMode::Local => "local",
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
    let all = tally.delays.iter().enumerate().filter(|(_, delays)| !delays.times.is_empty());
    let report = |(class, delays): (usize, &Delays)| ClassReport {
        class,
        delay: delays.into(),
        buckets: delays.times.buckets().collect(),
    };
    all.map(report).collect()
}
