//! A server on tokio, whose tasks do not give way while they compute: with two workers, and with many more workers than
//! CPUs, which is what people do today to get preemption.

use std::io;
use std::sync::atomic::AtomicBool;

use super::installed::tokio_server;
use super::options::PosixOptions;
use super::part::Part;
use super::rounds::find;
use super::server::{self, GAIN};
use super::system::System;
use super::testbed::Served;
use crate::suite::{PartResult, Target};
use heddle_metrics::{Progress, Row};

/// Workers of the server, and how many times lower than the kernel's the p99.9 of short requests must be.
const WORKERS: [(usize, Option<f64>); 2] = [(2, None), (8, Some(4.0))];
/// The number of cases.
pub(super) const CASES: u64 = WORKERS.len() as u64;
/// The case of the figure, that with the most workers.
pub(super) const SHORT: &str = "tokio-w8-get";
/// Its long requests.
pub(super) const LONG: &str = "tokio-w8-scan";

/// The name of a case in results.
fn name(workers: usize) -> String {
    format!("tokio-w{workers}")
}

/// Measures in interleaved rounds, one number of workers after the other.
///
/// # Errors
/// A server that does not start as kernel threads.
pub(super) fn run(
    options: &PosixOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let program = tokio_server(&options.program).map_err(io::Error::other)?;
    let mut rows = Vec::new();
    for (workers, _) in WORKERS {
        let served = Served {
            part: Part::Tokio,
            name: name(workers),
            program: program.clone(),
            args: vec![workers.to_string()],
        };
        rows.extend(server::measure(options, served, stop, progress)?);
    }
    Ok(PartResult { targets: targets(&options.systems, &rows), rows, ..PartResult::default() })
}

pub(super) fn targets(systems: &[System], rows: &[Row]) -> Vec<Target> {
    let Some(chief) = System::chief(systems) else { return Vec::new() };
    let of = |(workers, least): (usize, Option<f64>)| {
        let case = server::short(&name(workers));
        let what =
            format!("{}: the kernel's p99.9 of short requests over {chief}'s", name(workers));
        Some(Target::at_least(&what, find(rows, chief, &case, GAIN)?, least?))
    };
    WORKERS.into_iter().filter_map(of).collect()
}
