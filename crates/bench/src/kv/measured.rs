//! What a comparison measures, and why there may be nothing.

use super::calibrate::Calibrated;
use super::process::StartError;
use crate::load::LoadRun;
use crate::store::StoreError;
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
    /// What was counted.
    pub run: LoadRun,
    /// CPU time that the server used, in per cent of one CPU.
    pub cpu: Option<f64>,
}

/// SCANs alone, as many as one system can do, in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScanRate {
    /// Which round.
    pub round: u32,
    /// Which system.
    pub system: usize,
    /// SCANs a second.
    pub rate: f64,
}

/// All that was measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The points.
    pub samples: Vec<Sample>,
    /// The cost of preemption.
    pub scans: Vec<ScanRate>,
    /// What was found before the first round.
    pub calibrated: Option<Calibrated>,
    /// Whether somebody stopped it.
    pub interrupted: bool,
}

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// An option out of its range.
    #[error("{0}")]
    Options(String),
    /// A server did not start.
    #[error("{source}\n  run it by itself to see more: {command}")]
    Start {
        /// Which system, and why.
        source: StartError,
        /// How to repeat it.
        command: String,
    },
    /// A running server failed.
    #[error("{system}: {source}{said}")]
    Load {
        /// Which system.
        system: String,
        /// Why.
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
