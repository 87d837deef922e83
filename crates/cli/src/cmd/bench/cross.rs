//! `heddle bench cross`: steering and an agent by the same classes: either alone, and both.

use std::env;

use anyhow::Context;
use heddle_bench::cross::{CrossOptions, SERVER, System, serve};

use super::agent::Backend;
use super::kv_options::percent;
use super::suite::{self, Extent};
use crate::exit::{Outcome, Usage};

/// Options of `heddle bench cross`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  sudo heddle bench cross --report cross.html
  sudo heddle bench cross --loads 80 --rounds 5
  sudo heddle bench cross --systems steer,threads,both --json > cross.json

Half GETs of 10 us, half SCANs of 700 us, computed by six threads on one CPU (Syrup, Figure 8).
Systems: kernel (nothing), scan-avoid, sita and steer (a policy chooses the socket), threads (an
agent chooses the thread by what it works on), both (the policy classify writes the class, the
agent goes by it), and by hand: ports-nice and ports-fifo (a port and a pool for each kind, SCANs
at nice 19 or GETs at SCHED_FIFO), sita-fifo (sita, and its threads for GETs at SCHED_FIFO).
Steering and agents require root; without it, kernel and ports-nice run.
Exit code 3 if a system failed or a run is invalid; 130 after Ctrl-C, which prints what was
measured so far.")]
pub struct Args {
    /// The systems (comma-separated).
    #[arg(long, value_delimiter = ',')]
    systems: Vec<System>,
    /// Loads, in per cent of the computed capacity (comma-separated).
    #[arg(long, value_delimiter = ',', value_parser = percent)]
    loads: Vec<f64>,
    /// What carries out the agent's decisions: scx (sched_ext), rt (real-time priorities), or auto (scx if it
    /// works here).
    #[arg(long, value_enum, default_value = "auto")]
    backend: Backend,
    /// The agent's policy.
    #[arg(long)]
    policy: Option<String>,
    #[command(flatten)]
    extent: Extent,
    /// Run as the server; used by the runner.
    #[arg(long, hide = true, num_args = 2, value_names = ["WHAT", "SPEC"])]
    child: Option<Vec<String>>,
}

/// Measures and reports; as a child, serves until standard input closes.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.child.as_deref() {
        Some([what, spec]) if what == SERVER => serve(spec)?,
        Some(_) => return Err(Usage(format!("unknown child; expected {SERVER}")).into()),
        None => return suite::run(&options(&args)?, &args.extent),
    }
    Ok(Outcome::Done)
}

fn options(args: &Args) -> anyhow::Result<CrossOptions> {
    let program = env::current_exe().context("cannot find the file of this program")?;
    let mut options = CrossOptions::new(program, args.backend.wanted(), args.extent.quick);
    if let Some(wrong) = args.loads.iter().find(|percent| !(1.0..=95.0).contains(*percent)) {
        let text = format!("--loads: {wrong} per cent of the capacity is not from 1 to 95");
        return Err(Usage(text).into());
    }
    if !args.loads.is_empty() {
        options.loads = args.loads.iter().map(|percent| percent / 100.0).collect();
    }
    if !args.systems.is_empty() {
        options.systems.clone_from(&args.systems);
    }
    if let Some(policy) = &args.policy {
        options.policy.clone_from(policy);
    }
    if let Some(rounds) = args.extent.rounds {
        options.rounds = rounds;
    }
    if let Some(duration) = args.extent.duration() {
        options.duration = duration;
    }
    Ok(options)
}
