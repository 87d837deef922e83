//! The same key-value server on several systems, one after the other, under the same load.
//!
//! [`compare`] starts servers (`heddle kv serve`) as child processes, calibrates, and measures interleaved rounds.
//! [`Verdict`] has the rows and what they show.
//!
//! # Invariants
//!
//! - **I1** No server outlives its runner, however the runner ends. No temporary directory outlives a runner that was
//!   not killed; the next runner removes those of a killed one.
//! - **I2** Only one server runs at a time.
//! - **I3** All systems of a round get the same arrivals.
//! - **I4** A ratio compares two runs of the same round; a row is the median over rounds.

#![forbid(unsafe_code)]

pub(crate) mod calibrate;
mod cpus;
pub(crate) mod launch;
mod measured;
mod options;
mod process;
mod report;
mod runner;
mod scan_length;
mod scan_time;
mod summary;
mod system;
mod tail;
mod usage;
mod verdict;
pub(crate) mod workdir;

pub use calibrate::Calibrated;
pub use cpus::Cpus;
pub use measured::{KvError, Measured, Sample, ScanRate};
pub use options::{KvOptions, StoreKind};
pub use process::{ServerProcess, StartError};
pub use report::{conditions, report};
pub use runner::Runner;
pub use scan_time::ScanTime;
pub use system::{Net, Runtime, System, SystemError};
pub use usage::{Bystanders, cpu_time};
pub use verdict::{Verdict, judge};

use heddle_metrics::Progress;
use std::sync::atomic::AtomicBool;

/// Measures and judges. If `stop` is set, ends early with the measurements so far.
///
/// # Errors
/// [`KvError`]; no server and no temporary directory is left.
pub fn compare(
    options: &KvOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> Result<Verdict, KvError> {
    let mut measure = || Runner::prepare(options, stop, progress)?.run();
    let measured = match &options.pair {
        Some(pair) => pair.far.run(measure),
        None => measure(),
    };
    Ok(judge(options, &measured?))
}

impl KvOptions {
    /// The number of steps that [`compare`] shows.
    pub fn steps(&self) -> u64 {
        let dataset = u64::from(self.store == StoreKind::RocksDb);
        dataset + 1 + u64::from(self.rounds) * self.systems.len() as u64
    }
}
