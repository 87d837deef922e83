//! Steering in twenty seconds: for `heddle demo`.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use heddle_core::Ns;
use heddle_metrics::{Progress, Row, Table};

use super::mixes::{self, Case};
use super::{SteerOptions, System, privilege};

/// What the demo shows of steering.
pub struct Demo {
    /// The rows.
    pub rows: Vec<Row>,
    /// One table.
    pub tables: Vec<Table>,
    /// What it says.
    pub headlines: Vec<String>,
}

/// How many steps [`demo`] shows.
pub const DEMO_STEPS: u64 = 6;

/// Hash, JIQ and SITA on the dilated server at half of its capacity, in some twenty seconds; or in one line why not
/// here.
///
/// # Errors
/// Those of the system, while measuring.
pub fn demo(stop: &AtomicBool, progress: &mut Progress) -> io::Result<Result<Demo, String>> {
    if let Some(why) = privilege() {
        return Ok(Err(format!("Steering is left out: {why}.")));
    }
    let mut options = SteerOptions::new(PathBuf::new(), false).mixes;
    options.cases = vec![Case::Rare];
    options.loads = vec![0.5];
    options.systems =
        ["hash", "jiq", "sita"].iter().filter_map(|s| s.parse::<System>().ok()).collect();
    (options.rounds, options.duration) = (2, Ns::from_ms(2600));
    let (samples, failed) = mixes::run(&options, stop, progress);
    if let Some((system, error)) = failed.into_iter().next() {
        return Err(io::Error::other(format!("{system}: {error}")));
    }
    let rows = mixes::rows(&options, &samples);
    let (tables, headlines) = (mixes::tables(&options, &rows), mixes::verdicts(&rows));
    Ok(Ok(Demo { rows, tables, headlines }))
}
