//! `heddle share status`: who has which CPU.

use std::path::PathBuf;

use super::site::Site;
use super::view;
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle share status`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  heddle share status share.toml
  heddle share status share.toml --json | jq '.cores[] | {cpu, active, why}'")]
pub struct Args {
    /// The file that describes the share.
    file: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Shows a share.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let report = Site::of(&args.file)?.report()?;
    match args.json {
        true => out::json(&report)?,
        false => out::text(&view::status(&report, out::style()))?,
    }
    Ok(Outcome::Done)
}
