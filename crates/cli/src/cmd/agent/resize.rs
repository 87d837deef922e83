//! `heddle agent resize`: gives a running enclave other CPUs.

use heddle_agent::guardian::cpus::{self, Cpus};
use heddle_agent::guardian::{Answer, Enclaves, Request, ask};
use serde_json::json;

use super::refused;
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle agent resize`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle agent resize lc 2-9
  heddle agent resize lc 2-5,8 --json

The agent is replaced, as by an upgrade. Threads on CPUs that the enclave keeps stay there, the
others move. If the CPUs cannot be had, nothing changes. Works with --backend rt.")]
pub struct Args {
    /// The enclave.
    name: String,
    /// All CPUs that it is to have, such as 2-7,9.
    #[arg(value_name = "CPUS", value_parser = cpus::parse)]
    cpus: Cpus,
    /// Print one JSON object instead of a line.
    #[arg(long)]
    json: bool,
}

/// Asks the guardian for other CPUs.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let answer = Enclaves::here()
        .folder(&args.name)
        .and_then(|folder| ask(&folder, &Request::Resize { cpus: args.cpus }));
    match answer {
        Ok(Answer::Resized { cpus, gap_us, agent, failed, moved, outside }) => {
            #[allow(clippy::cast_precision_loss, reason = "milliseconds for people")]
            let gap_ms = gap_us.map(|gap_us| gap_us as f64 / 1e3);
            let (name, list) = (args.name, cpus::format(&cpus));
            if args.json {
                out::json(&json!({
                    "schema": 1,
                    "name": name,
                    "cpus": cpus,
                    "gap_ms": gap_ms,
                    "agent": agent,
                    "failed": failed,
                    "moved": moved,
                    "outside": outside,
                }))?;
                return Ok(Outcome::Done);
            }
            let Some(gap_ms) = gap_ms else {
                out::text(&format!("Enclave {name} has CPUs {list} already.\n"))?;
                return Ok(Outcome::Done);
            };
            out::text(&format!(
                "Enclave {name} now has CPUs {list}, with a new agent in process {agent}: {moved} threads moved. There \
                    was no agent for {gap_ms:.1} ms; {failed} commits failed meanwhile.\n"
            ))?;
            if outside > 0 {
                out::text(&format!(
                    "{outside} threads may run on none of these CPUs (taskset, cpuset), so the agent cannot schedule \
                        them.\n"
                ))?;
            }
            Ok(Outcome::Done)
        }
        Ok(other) => anyhow::bail!("unexpected answer: {other:?}"),
        Err(error) => refused(error),
    }
}
