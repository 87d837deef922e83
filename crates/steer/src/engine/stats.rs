//! Statistics of an attachment.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_bpf::{Program, ProgramInfo, count_run_time};

use super::Stored;
use super::group::present_indices;
use crate::hook::{Hook, counts};
use crate::request::{Error, ExecutorStats, Stats};

/// The longest sample.
pub(super) const MAX_SAMPLE: Duration = Duration::from_secs(2);

/// Returns the counts of an attachment; with `sample_ms`, also what decisions cost in that time.
pub fn of(stored: &Stored, sample_ms: u32) -> Result<Stats, Error> {
    let cost = if sample_ms > 0 { Some(sample(stored, sample_ms)?) } else { None };
    let there = present_indices(stored);
    // CPUs do not disappear, and the kernel does not report AF_XDP sockets.
    let stays = stored.attachment.hook != Hook::SocketSelect;
    let counts = counts::read(&stored.maps)
        .map_err(|error| Error::system("cannot read the counts", &error))?;
    let mut executors = Vec::new();
    for (index, label) in (0..).zip(&stored.attachment.executors) {
        let of = |counts: &[u64]| counts.get(index as usize).copied().unwrap_or(0);
        let socket = stored.attachment.sockets.get(index as usize).copied().unwrap_or(0);
        executors.push(ExecutorStats {
            index,
            label: label.clone(),
            selected: of(&counts.selected),
            failed: of(&counts.failed),
            moved: of(&counts.moved),
            socket,
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

/// What decisions cost over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// The number of decisions.
    pub runs: u64,
    /// Their total time, nanoseconds.
    pub ns: u64,
    /// The length of the period.
    pub over: Duration,
}

#[allow(clippy::cast_precision_loss, reason = "means for people")]
impl Cost {
    /// Returns decisions per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.runs as f64 / self.over.as_secs_f64().max(1e-9)
    }

    /// Returns nanoseconds per decision; `None` if there was none.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.runs > 0).then(|| self.ns as f64 / self.runs as f64)
    }

    /// Returns the share of one CPU spent on decisions.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.ns as f64 / 1e9 / self.over.as_secs_f64().max(1e-9)
    }
}

/// The kernel's counts of a program at one moment. The root program's run time includes the policy's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub program: u32,
    pub runs: u64,
    pub ns: u64,
    pub at: Instant,
}

impl Counted {
    pub fn of(program: &Program) -> io::Result<Self> {
        let ProgramInfo { id, runs, run_time, .. } = program.info()?;
        Ok(Self { program: id, runs, ns: run_time, at: Instant::now() })
    }

    pub fn since(&self, before: &Self) -> Cost {
        Cost {
            runs: self.runs.saturating_sub(before.runs),
            ns: self.ns.saturating_sub(before.ns),
            over: self.at - before.at,
        }
    }
}

pub(super) fn failed(error: &io::Error) -> Error {
    Error::system("cannot count run time", error)
}

fn sample(stored: &Stored, sample_ms: u32) -> Result<Cost, Error> {
    let _counting = count_run_time().map_err(|error| failed(&error))?;
    let read = || Counted::of(&stored.root).map_err(|error| failed(&error));
    let before = read()?;
    sleep(Duration::from_millis(sample_ms.into()).min(MAX_SAMPLE));
    Ok(read()?.since(&before))
}
