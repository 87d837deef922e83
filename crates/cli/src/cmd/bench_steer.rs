//! `heddle bench steer`: what steering policies do to the tail, what they cost, and servers that nobody changed.

use std::env;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Context;
use heddle_bench::steer::outside::{UDP_SERVER, serve_until_end};
use heddle_bench::steer::{self, Dilation, Part, SteerOptions, System};
use heddle_core::Ns;
use heddle_metrics::{Progress, Results};

use super::kv_args::{percent, point_seconds};
use crate::exit::{Outcome, Usage};
use crate::{interrupt, out};

/// Options of `heddle bench steer`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  sudo heddle bench steer --report steer.html
  sudo heddle bench steer --only mixes --systems hash,jiq,sita --loads 50 --rounds 5
  sudo heddle bench steer --only cost,maps --json > steer.json

Parts, in the order of their tables: mixes (six executors in dilated time under the papers' mixes), cost (of a
decision), maps (access from a program), replace (a policy under load), udp and gunicorn (servers that nobody
changed, in a network namespace), mica (keys to their cores across AF_XDP).
Policies take root, or CAP_BPF and CAP_NET_ADMIN; without, only hash and shared of the mixes run, and the rest
is named as skipped. scripts/setup --steer installs gunicorn.
Exit code 3 if a part failed or a run is invalid, 130 after Ctrl-C, which prints what was measured until then.")]
pub struct Args {
    /// Only these parts, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// Who chooses in the mixes: hash, class, shared, or a policy; separated by commas.
    #[arg(long, value_delimiter = ',')]
    systems: Vec<System>,
    /// Loads of the mixes, in per cent of the computed capacity.
    #[arg(long, value_delimiter = ',', value_parser = percent)]
    loads: Vec<f64>,
    /// Rounds behind each figure of the mixes and of the unmodified servers.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seconds that each point of the mixes is measured.
    #[arg(long, value_parser = point_seconds)]
    seconds: Option<f64>,
    /// By how much the service times of the papers are stretched.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    dilation: u32,
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
    #[arg(long, hide = true, num_args = 2, value_names = ["WHAT", "DILATION"])]
    child: Option<Vec<String>>,
}

/// Measures and reports; as a child, serves until standard input closes.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if let Some(child) = &args.child {
        return run_child(child);
    }
    let options = options(&args)?;
    let stop = interrupt::flag()?;
    let mut progress = Progress::new("bench steer", options.steps());
    let outcome = steer::run(&options, &stop, &mut progress);
    progress.finish("measured");
    if cfg!(debug_assertions) {
        eprintln!("heddle: a debug build: do not quote these figures (cargo build --release)");
    }
    let results = Results::here(outcome.rows.clone());
    if let Some(path) = &args.report {
        steer::report(&options, &outcome, &results).write(path)?;
    }
    if args.json {
        out::text(&format!("{}\n", results.to_json()))?;
    } else {
        out::text(&told(&options, &outcome))?;
    }
    Ok(ended(&outcome, &stop))
}

fn options(args: &Args) -> anyhow::Result<SteerOptions> {
    // Not /proc/self/exe: in a network namespace it is `ip` that starts the child.
    let program = env::current_exe().context("this program's own file is gone")?;
    let mut options = SteerOptions::new(program, args.quick);
    if !args.only.is_empty() {
        options.parts.retain(|part| args.only.contains(part));
    }
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
    if let Some(rounds) = args.rounds {
        (options.mixes.rounds, options.outside.rounds) = (rounds, rounds);
    }
    if let Some(seconds) = args.seconds {
        options.mixes.duration = Ns((seconds * 1e9) as u64);
    }
    options.mixes.dilation = Dilation(args.dilation);
    options.outside.dilation = Dilation(args.dilation);
    Ok(options)
}

fn run_child(words: &[String]) -> anyhow::Result<Outcome> {
    let [what, dilation] = words else { unreachable!("clap takes two values") };
    if what != UDP_SERVER {
        return Err(Usage(format!("no child `{what}`; there is {UDP_SERVER}")).into());
    }
    let dilation = dilation.parse().context("DILATION is a whole number")?;
    serve_until_end(Dilation(dilation))?;
    Ok(Outcome::Done)
}

fn told(options: &SteerOptions, outcome: &steer::Outcome) -> String {
    let mut text = String::new();
    for table in &outcome.tables {
        text += &(table.to_text(out::style()) + "\n");
    }
    outcome.headlines.iter().for_each(|line| text += &format!("{line}\n"));
    for (part, why) in &outcome.skipped {
        text += &format!("Skipped: {part}: {why}.\n");
    }
    for (part, why) in &outcome.failed {
        text += &format!("Failed: {part}: {why}.\n");
    }
    text += "\n";
    steer::conditions(options).iter().for_each(|line| text += &format!("{line}\n"));
    text
}

fn ended(outcome: &steer::Outcome, stop: &AtomicBool) -> Outcome {
    match (stop.load(Relaxed), outcome.valid()) {
        (true, _) => Outcome::Interrupted,
        (false, true) => Outcome::Done,
        (false, false) => Outcome::Invalid,
    }
}
