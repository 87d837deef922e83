//! Interleaved rounds over all points.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use heddle_metrics::{Progress, human};

use super::options::{MixOptions, Point};
use super::point::measure;
use super::rows::Sample;
use crate::steer::System;
use heddle_load::{LoadRun, Op};

/// Measures all points in turn in each round; returns the results so far if `stop` is set. A system that
/// cannot be measured is left out from then on, and reported with the reason.
pub fn run(
    options: &MixOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> (Vec<Sample>, Vec<(System, io::Error)>) {
    let (mut samples, mut failed) = (Vec::new(), Vec::<(System, io::Error)>::new());
    for round in 0..options.rounds {
        for point in options.points() {
            if stop.load(Ordering::Relaxed) {
                return (samples, failed);
            }
            if failed.iter().any(|(system, _)| *system == point.system) {
                continue;
            }
            let name = point.name();
            progress.step(&format!("round {}: {} at {name}", round + 1, point.system));
            match measure(options, &point, round, stop) {
                Ok(run) => {
                    progress.line(&line(&point, &run));
                    samples.push(Sample { round, point, run });
                }
                Err(error) => {
                    progress.line(&format!("  {}: {error}", point.system));
                    failed.push((point.system, error));
                }
            }
        }
    }
    (samples, failed)
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
