//! `heddle bench go`: Go programs on the stock runtime and with Heddle's scheduler in it.

use std::env;
use std::path::PathBuf;

use anyhow::Context;
use heddle_bench::go::{GoOptions, Part, System, Toolchain};
use heddle_bench::kv::Cpus;
use heddle_core::Ns;
use heddle_sys::thread::affinity;

use super::kv_options::percent;
use super::suite::{self, Extent, choose};
use crate::exit::{Outcome, Usage};

/// Options of `heddle bench go`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench go --report go.html
  heddle bench go --only badger-udp --systems stock,heddle-100us,aspen-100us --loads 15 --rounds 9
  heddle bench go --systems stock,heddle-50us-spin,heddle-100us-event --json > go.json
  heddle bench go --only cpu --cases mutex,sort

Parts, in the order of their tables: badger-udp and badger-http (BadgerDB under 99 % GETs and 1 %
range scans, Aspen's application), cpu (what the scheduler costs small programs in CPU time).
Systems: stock (go build); for programs built by heddle go build: heddle-off, heddle-QUANTUM, and
aspen-QUANTUM, the policy of Aspen-Go; with a suffix -timer, -event, -sleep or -spin for what
detects the end of a slice.
The programs' sources are in go/bench of a Heddle checkout. Go 1.25 or newer must be on the path;
heddle go check says whether it is supported. Ratios: short_p99_gain, stock's p99 of GETs over a
system's; short_p99_gain_over_aspen.
Exit code 3 if a part failed or a run is invalid; 130 after Ctrl-C, which prints what was measured
so far.")]
pub struct Args {
    /// Run only these parts (comma-separated).
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// The systems to compare (comma-separated) [default: stock,heddle-off,heddle-100us,aspen-100us].
    #[arg(long, value_delimiter = ',')]
    systems: Vec<System>,
    /// Loads of badger, in per cent of the stock runtime's capacity [default: 15,25; a closed loop spares the
    /// runtime most wakeups, so open loops saturate it at about 40].
    #[arg(long, value_delimiter = ',', value_parser = percent)]
    loads: Vec<f64>,
    /// The minimum duration of a SCAN [default: 800us, as in Aspen].
    #[arg(long, value_name = "TIME")]
    scan: Option<Ns>,
    /// Keys in badger's dataset [default: 200000].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    keys: Option<u32>,
    /// Programs of cpu (comma-separated) [default: all].
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// The folder with the Go programs' sources [default: go/bench of the checkout].
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    /// Confine the programs to these CPUs, and the load to another [default: badger to all but the last, cpu
    /// unconfined].
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<u32>,
    /// The seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    extent: Extent,
}

/// Measures and reports.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    suite::run(&options(&args)?, &args.extent)
}

fn options(args: &Args) -> anyhow::Result<GoOptions> {
    let program = env::current_exe().context("cannot find the file of this program")?;
    let systems = if args.systems.is_empty() { System::all() } else { args.systems.clone() };
    let toolchain = Toolchain::new(program, args.source.clone());
    let mut options = GoOptions::new(&systems, toolchain, args.extent.quick);
    choose(&mut options.parts, &args.only);
    badger(args, &mut options)?;
    options.cpu.cases.clone_from(&args.cases);
    let available = affinity()?;
    if !args.cpus.is_empty() {
        options.set_cpus(Cpus::divide(&available, Some(&args.cpus)).map_err(Usage)?);
    } else if available.len() > 1 {
        options.badger.cpus = Some(Cpus::divide(&available, None).map_err(Usage)?);
    }
    if let Some(rounds) = args.extent.rounds {
        options.set_rounds(rounds);
    }
    Ok(options)
}

fn badger(args: &Args, options: &mut GoOptions) -> anyhow::Result<()> {
    let badger = &mut options.badger;
    if !args.loads.is_empty() {
        badger.loads = shares(&args.loads)?;
    }
    badger.scan = args.scan.unwrap_or(badger.scan);
    badger.keys = args.keys.unwrap_or(badger.keys);
    badger.duration = args.extent.duration().unwrap_or(badger.duration);
    badger.seed = args.seed;
    Ok(())
}

fn shares(loads: &[f64]) -> Result<Vec<f64>, Usage> {
    match loads.iter().find(|percent| !(1.0..=150.0).contains(*percent)) {
        Some(wrong) => Err(Usage(format!(
            "--loads: {wrong} per cent of stock's capacity is not from 1 to 150"
        ))),
        None => Ok(loads.iter().map(|percent| percent / 100.0).collect()),
    }
}
