//! Starts a measurement in a process of its own and reads its result.

use super::child::Job;
use super::options::ShareOptions;
use crate::posix::process;
use serde::de::DeserializeOwned;
use std::io;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How much longer than it measures a process may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures; returns the figures, and the CPU time that processes but `ours` used meanwhile, as a share of one CPU.
///
/// # Errors
/// The process fails or hangs; `stop` is set ([`io::ErrorKind::Interrupted`]).
pub(super) fn measure<T: DeserializeOwned>(
    options: &ShareOptions,
    job: &Job,
    ours: &[u32],
    stop: &AtomicBool,
) -> io::Result<(T, f64)> {
    let mut command = Command::new(&options.program);
    command.args(["bench", "share", "--child", &serde_json::to_string(job)?]);
    let patience = PATIENCE + Duration::from(options.duration);
    let cpus = [options.cpu(), options.cpus.load];
    let output = process::run_beside(command, &cpus, Some(patience), ours, stop)?;
    let figures = serde_json::from_str(output.printed.trim()).map_err(|_| {
        io::Error::other(format!("printed no figures but `{}`", output.printed.trim()))
    })?;
    Ok((figures, output.others))
}
