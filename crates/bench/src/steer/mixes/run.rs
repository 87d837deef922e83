//! Interleaved rounds over all points.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use heddle_metrics::{Progress, human};

use super::options::{MixOptions, Point};
use super::point::measure;
use super::rows::Sample;
use crate::load::{LoadRun, Op};

/// Measures all points in turn, as often as there are rounds; what there is where `stop` is set.
///
/// # Errors
/// Those of the system, with the system's name.
pub fn run(
    options: &MixOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for round in 0..options.rounds {
        for point in options.points() {
            if stop.load(Ordering::Relaxed) {
                return Ok(samples);
            }
            let name = point.name();
            progress.step(&format!("round {}: {} at {name}", round + 1, point.system));
            let run = measure(options, &point, round, stop)
                .map_err(|error| io::Error::other(format!("{}: {error}", point.system)))?;
            progress.line(&line(&point, &run));
            samples.push(Sample { round, point, run });
        }
    }
    Ok(samples)
}

fn line(point: &Point, run: &LoadRun) -> String {
    let p99 = |op| human(run.tally.op(op).latency.p99().0 as f64, "ns");
    let p50 = |op| human(run.tally.op(op).latency.p50().0 as f64, "ns");
    let lost = run.tally.counts().lost_share() * 100.0;
    let invalid = run.invalid().map_or(String::new(), |why| format!(" ({why})"));
    format!(
        "  {:12} {}: GET p99 {}, SCAN p50 {}, dropped {lost:.1} %{invalid}",
        point.system.to_string(),
        point.name(),
        p99(Op::Get),
        p50(Op::Scan),
    )
}
