//! `heddle bench events`: one event queue with a policy against the ways in which threads share epoll.

use std::path::PathBuf;

use heddle_bench::events::{EventsOptions, Part, System, Wire, predicted};
use heddle_bench::steer::Dilation;
use heddle_metrics::Results;

use super::events_predicted;
use super::kv_options::percent;
use super::suite::{self, Extent, choose};
use crate::exit::{Outcome, Usage};

/// Options of `heddle bench events`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench events --report events.html
  heddle bench events --only gis --rounds 5 --policy hybrid:penalty=2us,steal=4
  heddle bench events --only overhead,pipes --threads 1,2,4 --json > events.json

Parts, in the order of their tables: overhead (what an event costs), pipes (saturated, on 1 to N
threads), zippydb (a few requests are very long), gis (a few connections are heavy; six threads in
dilated time), dilated (the same on twelve threads that sleep while they serve), uniform (all
requests are alike), memcached (Debian's with Facebook's ETC workload, and the program that
HEDDLE_MEMCACHED names with each policy: examples/memcached/run), web (small files that are in no
cache), priority (a high-priority client under full load), idle (what 500 idle threads cost beside
500 busy ones).
Systems: epoll-per-thread, epoll-shared, epoll-exclusive, or a policy of the queue (heddle
policies lists them).
Exit code 3 if a part failed or a run is invalid; 130 after Ctrl-C, which prints what was measured
so far.")]
pub struct Args {
    /// Run only these parts (comma-separated).
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// The systems to compare (comma-separated) [default: the three of epoll, queue-affinity, cpu-affinity,
    /// best-of-two, hybrid].
    #[arg(long, value_delimiter = ',')]
    systems: Vec<System>,
    /// An additional policy of the queue, with parameters (repeatable).
    #[arg(long = "policy", value_name = "TEXT")]
    policies: Vec<System>,
    /// Loads, in per cent of capacity [default: 35,60 for zippydb, 50,80 for dilated, 40,60 for gis, memcached and
    /// web].
    #[arg(long, value_delimiter = ',', value_parser = percent)]
    loads: Vec<f64>,
    /// Numbers of threads for pipes (comma-separated) [default: 1 to the number of CPUs].
    #[arg(long, value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,
    /// Service times of zippydb, as a multiple of the paper's.
    #[arg(long, default_value_t = 0.5, value_parser = scale)]
    scale: f64,
    /// The factor by which gis, priority and dilated stretch time [default: 20, and 100 for dilated].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    dilation: Option<u32>,
    /// Connect over loopback TCP instead of Unix sockets.
    #[arg(long)]
    tcp: bool,
    /// The seed of the arrivals and of which connections are heavy.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A simulated result or report of the same cases to show beside the measurements [default: zippydb, gis and
    /// dilated are simulated].
    #[arg(long, value_name = "FILE")]
    predicted: Option<PathBuf>,
    #[command(flatten)]
    extent: Extent,
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=64) => Ok(number),
        _ => Err("expected a number of threads from 1 to 64".into()),
    }
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if (0.01..=100.0).contains(&scale) => Ok(scale),
        _ => Err("expected a number from 0.01 to 100".into()),
    }
}

/// Measures and reports.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    suite::run(&options(&args)?, &args.extent)
}

fn options(args: &Args) -> anyhow::Result<EventsOptions> {
    let mut systems = if args.systems.is_empty() { System::all() } else { args.systems.clone() };
    // `--policy` names a policy of the queue; the three of epoll are systems.
    if let Some(wrong) = args.policies.iter().find(|system| !system.is_queue()) {
        return Err(
            Usage(format!("--policy: {wrong} is not a policy; use --systems for it")).into()
        );
    }
    let new = args.policies.iter().filter(|policy| !systems.contains(policy)).cloned();
    systems.extend(new.collect::<Vec<_>>());
    let mut options = EventsOptions::new(&systems, args.extent.quick);
    choose(&mut options.parts, &args.only);
    if !args.loads.is_empty() {
        options.set_loads(&shares(&args.loads)?);
    }
    if !args.threads.is_empty() {
        options.pipes.threads.clone_from(&args.threads);
    }
    options.set_scale(args.scale);
    if let Some(factor) = args.dilation {
        options.set_dilation(Dilation(factor));
    }
    options.set_wire(if args.tcp { Wire::Tcp } else { Wire::Unix });
    options.set_seed(args.seed);
    if let Some(rounds) = args.extent.rounds {
        options.set_rounds(rounds);
    }
    if let Some(duration) = args.extent.duration() {
        options.set_duration(duration);
    }
    options.predicted = match &args.predicted {
        Some(file) => predicted(Results::read(file)?),
        None => events_predicted::predict(&options)?,
    };
    Ok(options)
}

fn shares(loads: &[f64]) -> Result<Vec<f64>, Usage> {
    match loads.iter().find(|percent| !(1.0..=100.0).contains(*percent)) {
        Some(wrong) => {
            Err(Usage(format!("--loads: {wrong} per cent of the capacity is not from 1 to 100")))
        }
        None => Ok(loads.iter().map(|percent| percent / 100.0).collect()),
    }
}
