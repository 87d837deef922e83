//! `heddle bench sim`: the simulator's speed and memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use anyhow::Context;
use heddle_metrics::{BarChart, Collector, Progress, Report, Results, Row, Run, tables};
use heddle_sim::Scenario;

use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle bench sim`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench sim
  heddle bench sim --policies fifo,work-stealing --rounds 9 --report sim.html

A task event is an arrival, a start, an end or a preemption of a task. Each round covers all
policies and sizes; figures are medians. Memory is the process's peak, after a run and after one
ten times as long.")]
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
    Ok(Scenario { requests, ..Scenario::ideal(policy, cpus, "exp(10us)".parse()?, 0.8) })
}

fn measure(args: &Args, stop: &AtomicBool) -> anyhow::Result<Vec<Row>> {
    let steps = u64::from(args.rounds) * (args.policies.len() * args.cpus.len()) as u64;
    let mut progress = Progress::new("bench sim", steps + 2);
    let mut collect = Collector::new();
    // First, since the peak only grows: the short run before the long one, and both before large machines.
    for times in [1, 10] {
        progress.step(&format!("memory of {} requests", times * args.requests));
        heddle_sim::run(&scenario(&args.policies[0], 20, times * args.requests)?)?;
        let case = format!("{} requests", times * args.requests);
        collect.add(&args.policies[0], &case, MEMORY, "MiB", Run::ok(peak_mib()?));
    }
    'rounds: for _ in 0..args.rounds {
        for policy in &args.policies {
            for &cpus in &args.cpus {
                if stop.load(Relaxed) {
                    break 'rounds;
                }
                progress.step(&format!("{policy} on {cpus} CPUs"));
                let scenario = scenario(policy, cpus, args.requests)?;
                let began = Instant::now();
                let events = heddle_sim::run(&scenario)?.counts.events();
                let rate = events as f64 / began.elapsed().as_secs_f64();
                collect.add(policy, &format!("{cpus} CPUs"), RATE, "1/s", Run::ok(rate));
            }
        }
    }
    progress.finish("measured");
    Ok(collect.into_rows())
}

/// This process's peak memory in MiB.
fn peak_mib() -> anyhow::Result<f64> {
    let status = procfs::process::Process::myself().and_then(|me| me.status())?;
    Ok(status.vmhwm.context("no peak memory in /proc/self/status")? as f64 / 1024.0)
}
