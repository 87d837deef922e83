//! `heddle bench steer`: what steering policies do to the tail, what they cost, and unmodified servers.

use std::env;

use anyhow::Context;
use heddle_bench::steer::outside::{UDP_SERVER, serve_until_end};
use heddle_bench::steer::{Dilation, Part, SteerOptions, System};

use super::kv_options::percent;
use super::suite::{self, Extent, choose};
use crate::exit::{Outcome, Usage};

/// Options of `heddle bench steer`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  sudo heddle bench steer --report steer.html
  sudo heddle bench steer --only mixes --systems hash,jiq,sita --loads 50 --rounds 5
  sudo heddle bench steer --only cost,maps --json > steer.json

Parts, in the order of their tables: mixes (six executors in dilated time under the papers'
mixes), cost (of a decision), maps (access from a program), replace (a policy under load), udp and
gunicorn (unmodified servers in a network namespace), mica (keys to their cores).
Policies require root, or CAP_BPF and CAP_NET_ADMIN; without them, only hash and shared of the
mixes run, and the rest is reported as skipped. scripts/setup --steer installs gunicorn.
Exit code 3 if a part failed or a run is invalid; 130 after Ctrl-C, which prints what was measured
so far.")]
pub struct Args {
    /// Run only these parts (comma-separated).
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// The systems of the mixes: hash, class, shared, or a policy (comma-separated).
    #[arg(long, value_delimiter = ',')]
    systems: Vec<System>,
    /// Loads of the mixes, in per cent of the computed capacity (comma-separated).
    #[arg(long, value_delimiter = ',', value_parser = percent)]
    loads: Vec<f64>,
    /// The factor by which the papers' service times are stretched.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    dilation: u32,
    #[command(flatten)]
    extent: Extent,
    /// Run as a part of the bench; used by the runner.
    #[arg(long, hide = true, num_args = 2, value_names = ["WHAT", "DILATION"])]
    child: Option<Vec<String>>,
}

/// Measures and reports; as a child, serves until standard input closes.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if let Some(child) = &args.child {
        return run_child(child);
    }
    suite::run(&options(&args)?, &args.extent)
}

fn options(args: &Args) -> anyhow::Result<SteerOptions> {
    // Not /proc/self/exe: in a network namespace it is `ip` that starts the child.
    let program = env::current_exe().context("cannot find the file of this program")?;
    let mut options = SteerOptions::new(program, args.extent.quick);
    choose(&mut options.parts, &args.only);
    if !args.systems.is_empty() {
        options.mixes.systems.clone_from(&args.systems);
    }
    if let Some(wrong) = args.loads.iter().find(|percent| !(1.0..=150.0).contains(*percent)) {
        return Err(Usage(format!(
            "--loads: {wrong} per cent of the capacity is not from 1 to 150"
        ))
        .into());
    }
    if !args.loads.is_empty() {
        options.mixes.loads = args.loads.iter().map(|percent| percent / 100.0).collect();
    }
    if let Some(rounds) = args.extent.rounds {
        (options.mixes.rounds, options.outside.rounds, options.mica.rounds) =
            (rounds, rounds, rounds);
    }
    if let Some(duration) = args.extent.duration() {
        (options.mixes.duration, options.mica.duration) = (duration, duration);
    }
    options.mixes.dilation = Dilation(args.dilation);
    options.outside.dilation = Dilation(args.dilation);
    Ok(options)
}

fn run_child(words: &[String]) -> anyhow::Result<Outcome> {
    let [what, dilation] = words else { unreachable!("clap takes two values") };
    if what != UDP_SERVER {
        return Err(Usage(format!("unknown child `{what}`; expected {UDP_SERVER}")).into());
    }
    let dilation = dilation.parse().context("DILATION is a whole number")?;
    serve_until_end(Dilation(dilation))?;
    Ok(Outcome::Done)
}
