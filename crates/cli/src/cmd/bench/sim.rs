//! `heddle bench sim`: the simulator's speed and memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use anyhow::Context;
use heddle_metrics::{BarChart, Collector, Progress, Report, Results, Row, Run, tables};
use heddle_sim::{Scenario, reference};

use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle bench sim`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench sim
  heddle bench sim --policies fifo,work-stealing --rounds 9 --report sim.html

A task event is an arrival, a start, an end or a preemption of a task. `reference` is a plain
simulator: a heap of events, first come first served, no policies, costs or preemption, and only
response times are measured. Each round covers it and all policies, at all sizes; figures are
medians. Memory is the process's peak, after a run and after one ten times as long.")]
pub struct Args {
    /// The policies, without parameters (comma-separated).
    #[arg(long, value_delimiter = ',', default_values = ["fifo", "work-stealing", "round-robin"])]
    policies: Vec<String>,
    /// Numbers of simulated CPUs (comma-separated).
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 20, 64, 256, 1024])]
    cpus: Vec<usize>,
    /// Requests per run.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    requests: u64,
    /// Runs per figure.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print the results as one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Also write an HTML report to this file.
    #[arg(long, value_name = "FILE", value_parser = out::new_file)]
    report: Option<PathBuf>,
}

const RATE: &str = "task_events";
const REQUESTS: &str = "requests";
const MEMORY: &str = "peak_memory";

/// Measures and reports.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let stop = interrupt::flag()?;
    let results = Results::here(measure(&args, &stop)?);
    if cfg!(debug_assertions) {
        eprintln!(
            "heddle: this is a debug build; do not quote these figures (cargo build --release)"
        );
    }
    if let Some(path) = &args.report {
        let bars = BarChart::of(&results, RATE, "Task events per second");
        Report::new("Speed of the simulator").bars(bars).results(results.clone()).write(path)?;
    }
    if args.json {
        out::text(&format!("{}\n", results.to_json()))?;
    } else {
        let text: String =
            tables(&results).iter().map(|table| table.to_text(out::style())).collect();
        out::text(&text)?;
    }
    Ok(if stop.load(Relaxed) { Outcome::Interrupted } else { Outcome::Done })
}

fn scenario(policy: &str, cpus: usize, requests: u64) -> anyhow::Result<Scenario> {
    let ideal = Scenario::ideal(policy, cpus, "exp(10us)".parse()?, 0.8);
    Ok(Scenario { requests, warmup: 0.0, ..ideal })
}

fn measure(args: &Args, stop: &AtomicBool) -> anyhow::Result<Vec<Row>> {
    let steps = u64::from(args.rounds) * ((args.policies.len() + 1) * args.cpus.len()) as u64;
    let mut progress = Progress::new("bench sim", steps + 2);
    let mut collect = Collector::new();
    // First, since the peak only grows: the short run before the long one, and both before large machines.
    for times in [1, 10] {
        progress.step(&format!("memory of {} requests", times * args.requests));
        heddle_sim::run(&scenario(&args.policies[0], 20, times * args.requests)?)?;
        let case = format!("{} requests", times * args.requests);
        collect.add(&args.policies[0], &case, MEMORY, "MiB", Run::ok(peak_mib()?));
    }
    let systems = || [None].into_iter().chain(args.policies.iter().map(Some));
    'rounds: for _ in 0..args.rounds {
        for &cpus in &args.cpus {
            for policy in systems() {
                if stop.load(Relaxed) {
                    break 'rounds;
                }
                let name = policy.map_or("reference", |policy| policy.as_str());
                let case = format!("{cpus} CPUs");
                progress.step(&format!("{name} on {case}"));
                let speed = speed(policy, cpus, args.requests)?;
                collect.add(name, &case, REQUESTS, "1/s", Run::ok(speed.requests));
                if let Some(events) = speed.events {
                    collect.add(name, &case, RATE, "1/s", Run::ok(events));
                }
            }
        }
    }
    progress.finish("measured");
    Ok(collect.into_rows())
}

/// What is simulated in a second.
struct Speed {
    requests: f64,
    /// The reference has no tasks.
    events: Option<f64>,
}

/// Measures one run of `policy`, or of the reference.
fn speed(policy: Option<&String>, cpus: usize, requests: u64) -> anyhow::Result<Speed> {
    let scenario = scenario(policy.map_or("fifo", |policy| policy), cpus, requests)?;
    let began = Instant::now();
    let counts = match policy {
        Some(_) => Some(heddle_sim::run(&scenario)?.counts),
        None => reference::fifo(&scenario).map(|_| None)?,
    };
    let seconds = began.elapsed().as_secs_f64();
    let done = counts.map_or(requests, |counts| counts.done);
    let events = counts.map(|counts| counts.events() as f64 / seconds);
    Ok(Speed { requests: done as f64 / seconds, events })
}

/// This process's peak memory in MiB.
fn peak_mib() -> anyhow::Result<f64> {
    let status = procfs::process::Process::myself().and_then(|me| me.status())?;
    Ok(status.vmhwm.context("no peak memory in /proc/self/status")? as f64 / 1024.0)
}
