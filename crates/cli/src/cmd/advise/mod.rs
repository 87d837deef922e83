//! `heddle advise`: what would help a running service.

mod change;
mod check;
mod guard;
mod saved;
mod show;
mod watch;

use std::path::PathBuf;

use clap::Subcommand;
use heddle_advise::{Options, Slo};
use heddle_observe::{Recording, Target};

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
  sudo heddle advise check                               prove it: on and off in turns

Nothing is changed: it watches, replays what it saw under each option, and prints the commands that
apply and undo the best. Exit code 3: it declines to advise, and says why. docs/advise.md is the manual."
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
    let can_check = args.recording.is_none() && saved.advice.best().is_some();
    if can_check {
        saved.write()?;
    }
    match args.json {
        true => out::json(&saved.advice)?,
        false => out::text(&show::advice(&saved.advice, &model, can_check, out::style()))?,
    }
    Ok(if saved.advice.declined.is_some() { Outcome::Invalid } else { Outcome::Done })
}
