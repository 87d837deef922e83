//! `heddle advise`: what would help a running service.

pub mod change;
pub mod check;
pub mod guard;
mod saved;
pub mod show;
pub mod watch;

use std::path::PathBuf;

use clap::Subcommand;
use heddle_advise::{Design, Model, Options, Slo};
use heddle_observe::{Recording, Target};

use super::sim;
use crate::exit::{Outcome, Usage};
use crate::out;
use saved::Saved;

/// Options of `heddle advise`.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sudo heddle advise --pid 812 --slo 'p99 < 20ms'
  sudo heddle advise --port 5300 --for 60s --slo 'p99(short) < 5ms' --policy sita:type-offset=2,scan=3
  sudo heddle advise --port 8000 --save monday.json      keep what was seen
  heddle advise --recording monday.json --json           ask again, on any machine
  heddle advise --scenario rocksdb --workers 6           before there is a service
  sudo heddle advise check                               prove it: on and off in turns

Nothing is changed: it watches, replays what it saw under each option, and prints the commands
that apply and undo the best. Exit code 3: it declines to advise, and says why. docs/advise.md is
the manual."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Advise>,
    #[command(flatten)]
    target: watch::TargetArgs,
    /// How long to watch.
    #[arg(long = "for", value_name = "DURATION", default_value = "30s", value_parser = watch::duration)]
    time: std::time::Duration,
    /// The limit to keep: a quantile and a time, of all requests or of a class.
    #[arg(long, value_name = "LIMIT")]
    slo: Option<Slo>,
    /// A further steering policy to try, with its parameters; repeat for several.
    #[arg(long = "policy", value_name = "POLICY")]
    policies: Vec<String>,
    /// Read what was seen from a file instead of watching.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["processes", "save"])]
    recording: Option<PathBuf>,
    /// Ask about a service that does not run yet: the requests of a trace, as `heddle sim` reads it.
    #[arg(long, value_name = "FILE.csv", conflicts_with_all = ["processes", "ports", "save", "recording"],
        requires = "workers")]
    trace: Option<PathBuf>,
    /// The same, with the arrivals and the mix of a scenario of `heddle sim`.
    #[arg(long, value_name = "SCENARIO", conflicts_with_all = ["processes", "ports", "save", "recording", "trace"],
        requires = "workers")]
    scenario: Option<String>,
    /// Workers of that service, with a socket each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: Option<u16>,
    /// CPUs that run them [default: one for each worker].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), requires = "workers")]
    cpus: Option<u16>,
    /// Write what was seen to a file.
    #[arg(long, value_name = "FILE", value_parser = out::new_file)]
    save: Option<PathBuf>,
    /// Write the model to a file.
    #[arg(long, value_name = "FILE", value_parser = out::new_file)]
    model: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// What else `heddle advise` can do.
#[derive(Subcommand)]
enum Advise {
    /// Apply the best option and undo it in turns, and compare with what was predicted.
    Check(check::Args),
    /// Undo a change once standard input ends.
    #[command(hide = true)]
    Guard,
}

/// Advises, or checks.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.command {
        Some(Advise::Check(args)) => check::run(&args),
        Some(Advise::Guard) => guard::run(),
        None => advise(&args),
    }
}

fn advise(args: &Args) -> anyhow::Result<Outcome> {
    if args.trace.is_some() || args.scenario.is_some() {
        return design(args);
    }
    let (recording, target) = match &args.recording {
        Some(file) => {
            (Recording::read(file).map_err(|error| Usage(error.to_string()))?, Target::default())
        }
        None => {
            let target = args.target.target()?;
            let Some(recording) = watch::record(&target, args.time, true)? else {
                return Ok(Outcome::Interrupted);
            };
            (recording, target)
        }
    };
    if let Some(file) = &args.save {
        recording.write(file)?;
    }
    let port = args.target.ports.first().copied();
    let options = Options { slo: args.slo.clone(), port, policies: args.policies.clone() };
    let mut progress = None;
    let (advice, model) = heddle_advise::advise(&recording, &options, |_, all| {
        let bar = progress
            .get_or_insert_with(|| heddle_metrics::Progress::new("replaying", all as u64 + 1));
        bar.step("options");
    })
    .map_err(|error| Usage(error.to_string()))?;
    if let Some(progress) = progress {
        progress.finish("options replayed");
    }
    if let Some(file) = &args.model {
        model.write(file)?;
    }
    let saved = Saved { target, advice };
    let running = args.recording.is_none();
    if running {
        // Whatever it says: an older one must not pass for it.
        saved.write()?;
    }
    let can_check = running && saved.advice.best().is_some();
    match args.json {
        true => out::json(&saved.advice)?,
        false => out::text(&show::advice(&saved.advice, &model, can_check, out::style()))?,
    }
    Ok(if saved.advice.declined.is_some() { Outcome::Invalid } else { Outcome::Done })
}

/// Advises on a service that does not run yet.
fn design(args: &Args) -> anyhow::Result<Outcome> {
    let workers = usize::from(args.workers.unwrap_or(1));
    let design = Design { workers, cpus: args.cpus.map_or(workers, usize::from) };
    let usage = |error: &dyn std::fmt::Display| Usage(error.to_string());
    let model = match (&args.trace, &args.scenario) {
        (Some(file), _) => Model::of_trace(file, design),
        (None, scenario) => {
            let name = scenario.as_deref().unwrap_or_default();
            let scenario = sim::scenario::named(name)?;
            Model::of_scenario(name, &scenario, design)
        }
    }
    .map_err(|error| usage(&error))?;
    let options = Options { slo: args.slo.clone(), port: None, policies: args.policies.clone() };
    let advice =
        heddle_advise::advise_design(&model, &options, |_, _| {}).map_err(|error| usage(&error))?;
    if let Some(file) = &args.model {
        model.write(file)?;
    }
    match args.json {
        true => out::json(&advice)?,
        false => out::text(&show::design(&advice, &model, out::style()))?,
    }
    Ok(if advice.declined.is_some() { Outcome::Invalid } else { Outcome::Done })
}
