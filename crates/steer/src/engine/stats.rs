//! How an attachment does.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_sys::bpf::{Program, ProgramInfo, count_run_time};

use super::group::present_indices;
use super::{Engine, Stored};
use crate::hook::{Hook, counts};
use crate::request::{Attachment, Error, ExecutorStats, Stats};

/// The longest sample.
const MAX_SAMPLE: Duration = Duration::from_secs(2);

/// Counts of an attachment; with `sample_ms`, what decisions cost meanwhile.
pub fn of(stored: &Stored, sample_ms: u32) -> Result<Stats, Error> {
    let cost = if sample_ms > 0 { Some(sample(stored, sample_ms)?) } else { None };
    let there = present_indices(stored);
    // CPUs do not go away, and of AF_XDP sockets the kernel does not say.
    let stays = stored.attachment.hook != Hook::SocketSelect;
    let counts = counts::read(&stored.maps)
        .map_err(|error| Error::system("cannot read the counts", &error))?;
    let mut executors = Vec::new();
    for (index, label) in (0..).zip(&stored.attachment.executors) {
        let of = |counts: &[u64]| counts.get(index as usize).copied().unwrap_or(0);
        let (selected, failed) = (of(&counts.selected), of(&counts.failed));
        executors.push(ExecutorStats {
            index,
            label: label.clone(),
            selected,
            failed,
            present: stays || there.contains(&index),
        });
    }
    Ok(Stats {
        executors,
        passed: counts.passed,
        wrong_index: counts.wrong_index,
        dropped: counts.dropped,
        per_second: cost.map(|cost| cost.per_second()),
        ns_per_decision: cost.and_then(|cost| cost.mean()),
    })
}

/// What decisions cost over a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// How many there were.
    pub runs: u64,
    /// What they took together, nanoseconds.
    pub ns: u64,
    /// How long they were counted.
    pub over: Duration,
}

#[allow(clippy::cast_precision_loss, reason = "means for people")]
impl Cost {
    /// Decisions a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.runs as f64 / self.over.as_secs_f64().max(1e-9)
    }

    /// Nanoseconds of one; `None` if there was none.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.runs > 0).then(|| self.ns as f64 / self.runs as f64)
    }

    /// The share of one CPU that goes into decisions.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.ns as f64 / 1e9 / self.over.as_secs_f64().max(1e-9)
    }
}

/// What the kernel has counted of a program by a moment. The root program's run time has that of the policy in it.
#[derive(Clone, Copy, Debug)]
struct Counted {
    program: u32,
    runs: u64,
    ns: u64,
    at: Instant,
}

impl Counted {
    fn of(program: &Program) -> io::Result<Self> {
        let ProgramInfo { id, runs, run_time, .. } = program.info()?;
        Ok(Self { program: id, runs, ns: run_time, at: Instant::now() })
    }

    fn since(&self, before: &Self) -> Cost {
        Cost {
            runs: self.runs.saturating_sub(before.runs),
            ns: self.ns.saturating_sub(before.ns),
            over: self.at - before.at,
        }
    }
}

fn failed(error: &io::Error) -> Error {
    Error::system("cannot count run time", error)
}

fn sample(stored: &Stored, sample_ms: u32) -> Result<Cost, Error> {
    let _counting = count_run_time().map_err(|error| failed(&error))?;
    let read = || Counted::of(&stored.root).map_err(|error| failed(&error));
    let before = read()?;
    sleep(Duration::from_millis(sample_ms.into()).min(MAX_SAMPLE));
    Ok(read()?.since(&before))
}

/// What policies cost, from one asking to the next.
///
/// The kernel adds the time of a run at its end, and only if it counted when the run began. So while there are policies of users
/// other than root it counts all the time: no decision is too long to be counted, and no moment is one to behave well in.
/// Counting costs every BPF program of the machine two readings of the clock a run; root's own policies are sampled.
#[derive(Debug, Default)]
pub struct Meter {
    counting: Option<OwnedFd>,
    /// By the kernel's number of the program.
    last: BTreeMap<u32, Counted>,
}

/// What each policy has cost, or why that cannot be told.
pub type Costs = Vec<(Attachment, Result<Cost, Error>)>;

/// An attachment, and the program in which its decisions are counted.
pub(super) type Deciding = (Attachment, Result<Program, Error>);

impl Meter {
    /// What each policy that decides has cost since this was last asked, or in `sample` where all are root's; an error where that
    /// cannot be told. Those at one interface are counted together: what they cost is told of the newest that is not root's.
    ///
    /// # Errors
    /// If the kernel does not count, or the list cannot be read.
    pub fn costs(&mut self, engine: &Engine, sample: Duration) -> Result<Costs, Error> {
        let programs = engine.deciding()?;
        if programs.is_empty() {
            *self = Self::default();
            return Ok(Vec::new());
        }
        let strangers = programs.iter().any(|(attachment, _)| attachment.uid != 0);
        if self.counting.is_none() {
            self.counting = Some(count_run_time().map_err(|error| failed(&error))?);
            self.last = by_program(programs.iter().filter_map(|program| counted(program).ok()));
            if !strangers {
                sleep(sample.min(MAX_SAMPLE));
            }
        }
        let now: Vec<_> = programs.iter().map(counted).collect();
        let cost = |now: &Counted| {
            // One that is new has cost nothing yet.
            self.last.get(&now.program).map_or(Cost::default(), |last| now.since(last))
        };
        let costs = now.iter().map(|now| now.as_ref().map(cost).map_err(Error::clone));
        let costs = programs.iter().map(|(attachment, _)| attachment.clone()).zip(costs).collect();
        match strangers {
            true => self.last = by_program(now.into_iter().flatten()),
            false => *self = Self::default(),
        }
        Ok(costs)
    }
}

fn counted((_, program): &Deciding) -> Result<Counted, Error> {
    let program = program.as_ref().map_err(Error::clone)?;
    Counted::of(program).map_err(|error| failed(&error))
}

fn by_program(counted: impl Iterator<Item = Counted>) -> BTreeMap<u32, Counted> {
    counted.map(|counted| (counted.program, counted)).collect()
}
