//! `heddle compare`: two results side by side, and whether they differ by more than their spread.

use std::path::PathBuf;

use anyhow::bail;
use heddle_metrics::{Results, Verdict, compare};

use crate::exit::Outcome;
use crate::out;

/// Options of `heddle compare`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench threads --json > before.json
  heddle bench threads --json > after.json
  heddle compare before.json after.json

Either file may also be an HTML report. The exit code is 0; with --check, 1 if anything is worse.")]
pub struct Args {
    /// The baseline (JSON or HTML report).
    a: PathBuf,
    /// The result to judge.
    b: PathBuf,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Fail (exit code 1) if anything is worse by more than the spread.
    #[arg(long)]
    check: bool,
}

/// Reads both results and prints how the second differs.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let comparison = compare(&Results::read(&args.a)?, &Results::read(&args.b)?);
    if args.json {
        out::text(&format!("{}\n", comparison.to_json()))?;
    } else {
        out::text(&comparison.to_table().to_text(out::style()))?;
    }
    let worse = comparison.count(Verdict::Worse);
    if args.check && worse > 0 {
        bail!(
            "{worse} of {} figures in {} are worse than in {}",
            comparison.changes.len(),
            args.b.display(),
            args.a.display()
        );
    }
    Ok(Outcome::Done)
}
