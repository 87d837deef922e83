//! `heddle diff`: a file against what is in force.

use std::path::PathBuf;

use super::file::DeploymentFile;
use super::record::Records;
use super::{Comparison, show};
use crate::cmd::steer::connect::open;
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle diff`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  heddle diff /etc/heddle/kv.toml
  heddle diff kv.toml --explain

The lines are what `heddle apply` would do: + is missing, ~ differs, - is not in the file; ! has
nothing to apply to now. The exit code is 0 if there is no difference, 1 if there is one, 2 if the
file is wrong.")]
pub struct Args {
    /// The deployment file.
    file: PathBuf,
    /// Print why, with each line.
    #[arg(long)]
    explain: bool,
    /// Bypass the daemon, even if it runs (root only).
    #[arg(long)]
    direct: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Compares, and prints the differences.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let records = Records::here()?;
    let wanted = DeploymentFile::read(&args.file)?;
    let steering = open(args.direct)?;
    let Comparison { record, current, plan, .. } = Comparison::of(&steering, &records, &wanted)?;
    match args.json {
        true => out::json(&show::json(&plan, &wanted, &current.notes))?,
        false => out::text(&show::text(&plan, &wanted, args.explain))?,
    }
    let is_cut_short = record.is_some_and(|record| !record.complete);
    if is_cut_short {
        eprintln!("Note: the last `heddle apply` was cut short; apply it again, or remove it");
    }
    let is_same = plan.steps.is_empty() && plan.absent.is_empty() && !is_cut_short;
    Ok(if is_same { Outcome::Done } else { Outcome::Program(1) })
}
