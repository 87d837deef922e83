//! `heddle doctor`: what this machine supports, one line per check, with the consequence.
//!
//! Facts about the machine come from files that any user may read. Steering is tried out on the doctor's own
//! sockets and network namespaces; that leaves nothing behind and touches no other traffic.

use serde::Serialize;

use self::check::{Check, State};
use self::machine::Machine;
use crate::exit::Outcome;
use crate::out;

mod agents;
mod check;
mod group;
mod kernel;
mod limits;
mod machine;
mod observing;
mod processor;
mod steering;
#[cfg(test)]
mod tests;

/// Options of `heddle doctor`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle doctor
  heddle doctor --json | jq -r '.checks[] | select(.state != \"yes\") | .id'

Exit code 0 means that the checks ran, not that the machine has everything.")]
pub struct Args {
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    checks: Vec<Check>,
}

/// Runs all checks and prints the results.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let mut checks = inspect(&Machine::here());
    checks.extend(steering::checks());
    checks.extend(agents::checks());
    checks.extend(observing::checks());
    if args.json {
        out::json(&Report { schema: 1, checks })?;
    } else {
        out::text(&lines(&checks, out::style().colour))?;
    }
    Ok(Outcome::Done)
}

fn inspect(machine: &Machine) -> Vec<Check> {
    let mut checks = processor::checks(machine);
    checks.extend(kernel::checks(machine));
    checks.extend(limits::checks(machine));
    checks.push(store());
    checks
}

fn store() -> Check {
    if cfg!(feature = "rocksdb") {
        return Check::new(
            "rocksdb",
            State::Yes,
            "the RocksDB store is built in",
            "kv serve and bench kv run on RocksDB",
        );
    }
    Check::new(
        "rocksdb",
        State::No,
        "built without the RocksDB store",
        "kv serve and bench kv use the in-memory store; install librocksdb-dev and build with --features rocksdb",
    )
}

fn lines(checks: &[Check], colour: bool) -> String {
    let widest = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    checks.iter().map(|check| line(check, widest, colour)).collect()
}

fn line(check: &Check, id_width: usize, colour: bool) -> String {
    let (label, escape) = check.state.label();
    let (on, off) = if colour { (escape, "\x1b[0m") } else { ("", "") };
    let Check { id, found, follows, .. } = check;
    format!("{on}{label:<6}{off}  {id:<id_width$}  {found} -> {follows}\n")
}
