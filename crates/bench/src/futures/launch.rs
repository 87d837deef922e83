//! Starts a measurement in a process of its own and reads its result.

use super::child::Job;
use super::options::AsyncOptions;
use crate::posix::process;
use serde::de::DeserializeOwned;
use std::io;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How much longer than it measures a process may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A result, and the CPU time that other processes used meanwhile, as a share of one CPU.
#[derive(Clone, Debug)]
pub(super) struct Measured<T> {
    pub(super) figures: T,
    pub(super) others: f64,
}

/// Measures on `cpus`.
///
/// # Errors
/// The process fails or hangs; `stop` is set ([`io::ErrorKind::Interrupted`]).
pub(super) fn measure<T: DeserializeOwned>(
    options: &AsyncOptions,
    job: &Job,
    cpus: &[u32],
    stop: &AtomicBool,
) -> io::Result<Measured<T>> {
    let mut command = Command::new(&options.program);
    command.args(["bench", "async", "--child", &serde_json::to_string(job)?]);
    let patience = PATIENCE + Duration::from(options.duration);
    let output = process::run(command, cpus, Some(patience), stop)?;
    let figures = serde_json::from_str(output.printed.trim()).map_err(|_| {
        io::Error::other(format!("printed no figures but `{}`", output.printed.trim()))
    })?;
    Ok(Measured { figures, others: output.others })
}
