//! How an attachment does.

use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_sys::bpf::{Program, ProgramInfo, count_run_time};

use super::Stored;
use super::group::present_indices;
use crate::hook::{Hook, counts};
use crate::request::{Error, ExecutorStats, Stats};

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
        per_second: cost.map(|cost| cost.per_second),
        ns_per_decision: cost.and_then(|cost| cost.ns),
    })
}

/// What the decisions of an attachment cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Decisions a second.
    pub per_second: f64,
    /// Nanoseconds of one; `None` if there was none.
    pub ns: Option<f64>,
}

impl Cost {
    /// The share of one CPU that goes into decisions.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.per_second * self.ns.unwrap_or(0.0) / 1e9
    }
}

fn sample(stored: &Stored, sample_ms: u32) -> Result<Cost, Error> {
    let costs = costs(&[&stored.root], Duration::from_millis(sample_ms.into()))?;
    Ok(costs.first().copied().unwrap_or(Cost { per_second: 0.0, ns: None }))
}

/// What the decisions of each cost during `sample`. The root program's run time has that of the policy in it.
#[allow(clippy::cast_precision_loss, reason = "means for people")]
pub fn costs(all: &[&Program], sample: Duration) -> Result<Vec<Cost>, Error> {
    let failed = |error: std::io::Error| Error::system("cannot count run time", &error);
    let read = || all.iter().map(|one| one.info()).collect::<Result<Vec<_>, _>>();
    let counting = count_run_time().map_err(failed)?;
    let before = read().map_err(failed)?;
    let begin = Instant::now();
    sleep(sample.min(MAX_SAMPLE));
    let after = read().map_err(failed)?;
    let seconds = begin.elapsed().as_secs_f64();
    drop(counting);
    let cost = |(before, after): (&ProgramInfo, &ProgramInfo)| {
        let runs = after.runs.saturating_sub(before.runs);
        let time = after.run_time.saturating_sub(before.run_time);
        Cost {
            per_second: runs as f64 / seconds,
            ns: (runs > 0).then(|| time as f64 / runs as f64),
        }
    };
    Ok(before.iter().zip(&after).map(cost).collect())
}
