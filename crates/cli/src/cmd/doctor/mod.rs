//! `heddle doctor`: what this machine can do, one line each with what follows from it.

use crate::exit::Outcome;
use crate::out;

/// Options of `heddle doctor`.
#[derive(clap::Args)]
#[command(after_help = "Example: heddle doctor --json | jq '.checks[] | select(.state == \"no\")'")]
pub struct Args {
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// Looks at the machine and prints what it found.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if args.json {
        out::json(&serde_json::json!({ "checks": [] }))?;
    }
    Ok(Outcome::Done)
}
