//! `heddle bench agent`: what agents do for threads, what their operations cost, what happens when they die.

use std::env;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Context;
use clap::ValueEnum;
use heddle_agent::guardian::Kind;
use heddle_bench::agent::{self, AgentOptions, Part, child};
use heddle_core::Ns;
use heddle_metrics::{Progress, Results};

use super::kv_args::point_seconds;
use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle bench agent`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  sudo heddle bench agent --report agents.html
  sudo heddle bench agent --only delay --rounds 5
  heddle bench agent --only scaling --json > scaling.json
  scripts/bench-agent-vm --only table3,group

Parts, in the order of their tables: delay (a short periodic thread beside hogs), table3 (the operations of
ghOSt's Table 3), group (sixteen commits at once), scaling (a central agent over simulated CPUs), rocksdb (a
server beside antagonists), recover (an agent is killed), upgrade (an agent is replaced), storm (affinities are
toggled). Agents take root; without, delay, table3 and rocksdb measure the default scheduler alone, scaling
runs, and the rest is named as skipped.
Exit code 3 if a part failed or a run is invalid, 130 after Ctrl-C, which prints what was measured until then.")]
pub struct Args {
    /// Only these parts, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// What carries out the agents' decisions: scx (sched_ext), rt (real-time priorities), or auto (scx if it works here).
    #[arg(long, value_enum, default_value = "auto")]
    backend: Backend,
    /// Policies of the delay, separated by blanks; the targets are about the first.
    #[arg(long, value_delimiter = ' ')]
    policies: Vec<String>,
    /// Rounds behind each figure.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seconds that each system is measured, in the delay and beside antagonists.
    #[arg(long, value_parser = point_seconds)]
    seconds: Option<f64>,
    /// Everything once and shortly: to see that it works, not to quote.
    #[arg(long)]
    quick: bool,
    /// Print the results as one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Write an HTML report to this file as well.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Be a part of the bench: what the runner starts.
    #[arg(long, hide = true, num_args = 2, value_names = ["WHAT", "SPEC"])]
    child: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    Auto,
    Scx,
    Rt,
}

/// Measures and reports; as a child, is a load.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if let Some([what, spec]) = args.child.as_deref() {
        return Ok(Outcome::Program(child::be(what, spec)?));
    }
    let options = options(&args)?;
    let stop = interrupt::flag()?;
    let mut progress = Progress::new("bench agent", options.steps());
    let outcome = agent::run(&options, &stop, &mut progress);
    progress.finish("measured");
    if cfg!(debug_assertions) {
        eprintln!("heddle: a debug build: do not quote these figures (cargo build --release)");
    }
    let results = Results::here(outcome.rows.clone());
    if let Some(path) = &args.report {
        agent::report(&options, &outcome, &results).write(path)?;
    }
    if args.json {
        out::text(&format!("{}\n", results.to_json()))?;
        // Scripts read the rows; people who watch still want to know.
        outcome.targets.iter().for_each(|target| eprintln!("{}", target.line()));
    } else {
        out::text(&told(&options, &outcome))?;
    }
    Ok(ended(&outcome, &stop))
}

fn options(args: &Args) -> anyhow::Result<AgentOptions> {
    let program = env::current_exe().context("this program's own file is gone")?;
    let wanted = match args.backend {
        Backend::Auto => None,
        Backend::Scx => Some(Kind::Scx),
        Backend::Rt => Some(Kind::Rt),
    };
    let mut options = AgentOptions::new(program, wanted, args.quick);
    if !args.only.is_empty() {
        options.parts.retain(|part| args.only.contains(part));
    }
    if !args.policies.is_empty() {
        options.set_policies(&args.policies);
    }
    if let Some(rounds) = args.rounds {
        options.set_rounds(rounds);
    }
    if let Some(seconds) = args.seconds {
        let duration = Ns((seconds * 1e9) as u64);
        (options.delay.duration, options.server.duration) = (duration, duration);
    }
    Ok(options)
}

fn told(options: &AgentOptions, outcome: &agent::Outcome) -> String {
    let mut text = String::new();
    for table in &outcome.tables {
        text += &(table.to_text(out::style()) + "\n");
    }
    outcome.targets.iter().for_each(|target| text += &format!("{}\n", target.line()));
    for (part, why) in &outcome.skipped {
        text += &format!("Skipped: {part}: {why}.\n");
    }
    for (part, why) in &outcome.failed {
        text += &format!("Failed: {part}: {why}.\n");
    }
    text += "\n";
    agent::conditions(options).iter().for_each(|line| text += &format!("{line}\n"));
    text
}

fn ended(outcome: &agent::Outcome, stop: &AtomicBool) -> Outcome {
    match (stop.load(Relaxed), outcome.valid()) {
        (true, _) => Outcome::Interrupted,
        (false, true) => Outcome::Done,
        (false, false) => Outcome::Invalid,
    }
}
