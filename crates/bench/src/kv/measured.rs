//! What a comparison measures, and why it can fail.

use super::calibrate::Calibrated;
use super::process::StartError;
use heddle_core::Ns;
use heddle_load::LoadRun;
use heddle_metrics::human;
use heddle_store::StoreError;
use std::io;

/// One system at one load in one round.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Which round.
    pub round: u32,
    /// Which system of [`super::KvOptions::systems`].
    pub system: usize,
    /// Which load of [`super::KvOptions::loads`].
    pub load: usize,
    /// The load generator's counts.
    pub run: LoadRun,
    /// The server's CPU time, in per cent of one CPU.
    pub cpu: Option<f64>,
}

/// The rate of SCANs alone that a system reaches in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScanRate {
    /// Which round.
    pub round: u32,
    /// Which system.
    pub system: usize,
    /// SCANs per second.
    pub rate: f64,
}

/// All measurements.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The points.
    pub samples: Vec<Sample>,
    /// SCANs alone, from which the cost of preemption follows.
    pub scans: Vec<ScanRate>,
    /// The time of a GET on the unloaded server.
    pub get_service: Option<Ns>,
    /// The p99.9 of few GETs without SCANs, one figure per round: only the machine delays them.
    pub quiet_p999: Vec<Ns>,
    /// The calibration before the first round.
    pub calibrated: Option<Calibrated>,
    /// Whether it was stopped early.
    pub interrupted: bool,
}

impl Measured {
    /// A sentence on the ratio of the service times.
    pub(super) fn ratio_in_words(&self) -> Option<String> {
        let (get, scan) = (self.get_service?, self.calibrated?.scan_service);
        (scan > Ns::ZERO).then(|| {
            format!(
                "A SCAN is {:.0} times as long as a GET: {} and {}, measured one at a time on the unloaded server.",
                ratio(scan, get),
                human(scan.0 as f64, "ns"),
                human(get.0 as f64, "ns"),
            )
        })
    }

    /// The p99.9 of GETs that the machine alone causes: the median of the rounds.
    pub(super) fn machine_p999(&self) -> Option<Ns> {
        let mut rounds = self.quiet_p999.clone();
        rounds.sort();
        rounds.get(rounds.len() / 2).copied()
    }
}

/// Returns `time` divided by `other`.
pub(super) fn ratio(time: Ns, other: Ns) -> f64 {
    time.0 as f64 / other.0.max(1) as f64
}

/// Why a comparison failed.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// An option out of its range.
    #[error("{0}")]
    Options(String),
    /// A server did not start.
    #[error("{source}\n  run it by itself to see more: {command}")]
    Start {
        /// The system and the reason.
        source: StartError,
        /// The command that repeats it.
        command: String,
    },
    /// A running server failed.
    #[error("{system}: {source}{said}")]
    Load {
        /// The system.
        system: String,
        /// The reason.
        source: io::Error,
        /// The end of its standard error.
        said: String,
    },
    /// The dataset could not be made.
    #[error("cannot make the dataset: {0}")]
    Dataset(#[from] StoreError),
    /// A temporary directory, or this process's CPU.
    #[error("cannot prepare: {0}")]
    Prepare(#[from] io::Error),
}
