//! `heddle agent status`.

use heddle_agent::guardian::{Enclaves, clean, cleaned};
use serde_json::json;

use super::child;
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle agent status`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle agent status
  heddle agent status lc --watch
  heddle agent status --json | jq '.enclaves[] | {name: .guardian.name, threads: .report.threads}'")]
pub struct Args {
    /// Only this enclave.
    name: Option<String>,
    /// Stay, and show it anew each second.
    #[arg(long)]
    watch: bool,
    /// Print one JSON object instead of text; with --watch one a line.
    #[arg(long)]
    json: bool,
}

/// Shows enclaves.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    for done in clean(&Enclaves::here(), &child::backends()) {
        eprintln!("heddle: {}", cleaned(&done));
    }
    out::json(&json!({"name": args.name, "watch": args.watch}))?;
    Ok(Outcome::Done)
}
