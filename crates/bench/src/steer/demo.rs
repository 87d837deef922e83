//! Steering in twenty seconds: for `heddle demo`.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use heddle_core::Ns;
use heddle_metrics::{Progress, Row, Table};

use super::mixes::{self, Case};
use super::{SteerOptions, System, privilege};

/// The demo's results on steering.
pub struct Demo {
    /// The rows.
    pub rows: Vec<Row>,
    /// One table.
    pub tables: Vec<Table>,
    /// The finding.
    pub sentence: String,
}

/// The number of steps that [`demo`] shows.
pub const DEMO_STEPS: u64 = 6;

/// Measures the kernel's hash, JIQ and SITA on the dilated server at half of its capacity, in about twenty seconds.
/// `Err` inside is one line on why this machine cannot.
///
/// # Errors
/// System errors while measuring.
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
    let (mut tables, sentence) = (mixes::tables(&options, &rows), mixes::gains(&rows));
    let name = format!("{}-half-load", Case::Rare.name());
    for table in &mut tables {
        table.title = table.title.replace(&name, "99.5 % GETs, 0.5 % SCANs");
    }
    Ok(Ok(Demo { rows, tables, sentence }))
}
