//! `heddle bench agent`: what agents do for threads, what their operations cost, and what happens when they die.

use std::env;

use anyhow::Context;
use clap::ValueEnum;
use heddle_agent::guardian::Kind;
use heddle_bench::agent::{AgentOptions, Part, child};

use super::suite::{self, Extent, choose};
use crate::exit::Outcome;

/// Options of `heddle bench agent`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  sudo heddle bench agent --report agents.html
  sudo heddle bench agent --only delay,services --rounds 5
  heddle bench agent --only scaling --json > scaling.json
  scripts/bench-agent-vm --only table3,group

Parts, in the order of their tables: delay (a short periodic thread beside hogs), services (two
services and batch work, against tuning by hand), table3 (the operations of ghOSt's Table 3),
group (sixteen commits at once), scaling (a central agent over simulated CPUs), rocksdb (a server
beside antagonists), snap (workers of a packet-processing service beside antagonists), search
(three types of queries on simulated sockets and caches), vm (virtual machines on simulated
hyperthreads), recover (an agent is killed), upgrade (an agent is replaced), storm (affinities are
toggled). Agents require root; without it, delay, table3, rocksdb and snap measure the default
scheduler alone, scaling, search and vm run, and the rest is reported as skipped.
Exit code 3 if a part failed or a run is invalid; 130 after Ctrl-C, which prints what was measured
so far.")]
pub struct Args {
    /// Run only these parts (comma-separated).
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// What carries out the agents' decisions: scx (sched_ext), rt (real-time priorities), or auto (scx if it
    /// works here). The fair backend has its own row in delay and services.
    #[arg(long, value_enum, default_value = "auto")]
    backend: Backend,
    /// Policies for delay, separated by spaces; the targets apply to the first.
    #[arg(long, value_delimiter = ' ')]
    policies: Vec<String>,
    #[command(flatten)]
    extent: Extent,
    /// Run as a part of the bench; used by the runner.
    #[arg(long, hide = true, num_args = 2, value_names = ["WHAT", "SPEC"])]
    child: Option<Vec<String>>,
}

/// What carries out an agent's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    Auto,
    Scx,
    Rt,
}

impl Backend {
    /// Returns the required one; none if any will do.
    pub(super) fn wanted(self) -> Option<Kind> {
        match self {
            Self::Auto => None,
            Self::Scx => Some(Kind::Scx),
            Self::Rt => Some(Kind::Rt),
        }
    }
}

/// Measures and reports; as a child, generates a load.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if let Some([what, spec]) = args.child.as_deref() {
        return Ok(Outcome::Program(child::be(what, spec)?));
    }
    suite::run(&options(&args)?, &args.extent)
}

fn options(args: &Args) -> anyhow::Result<AgentOptions> {
    let program = env::current_exe().context("cannot find the file of this program")?;
    let mut options = AgentOptions::new(program, args.backend.wanted(), args.extent.quick);
    choose(&mut options.parts, &args.only);
    if !args.policies.is_empty() {
        options.set_policies(&args.policies);
    }
    if let Some(rounds) = args.extent.rounds {
        options.set_rounds(rounds);
    }
    if let Some(duration) = args.extent.duration() {
        options.delay.duration = duration;
        options.server.duration = duration;
        options.snap.duration = duration;
    }
    Ok(options)
}
