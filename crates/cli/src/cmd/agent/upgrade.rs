//! `heddle agent upgrade`: replaces a running agent.

use heddle_agent::guardian::{Answer, Enclaves, Request, ask};
use serde_json::json;

use super::refused;
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle agent upgrade`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle agent upgrade lc
  ./heddle-new agent upgrade lc --policy shinjuku:quantum=500us

The new agent is the binary that runs this command. It loads before the old one leaves; meanwhile,
running threads keep their CPUs. If it cannot load, the old one stays.")]
pub struct Args {
    /// The enclave.
    name: String,
    /// The new policy [default: unchanged].
    #[arg(long)]
    policy: Option<String>,
    /// Print one JSON object instead of a line.
    #[arg(long)]
    json: bool,
}

/// Asks the guardian to upgrade.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let folder = match Enclaves::here().folder(&args.name) {
        Ok(folder) => folder,
        Err(error) => return refused(error),
    };
    match ask(&folder, &Request::Upgrade { policy: args.policy }) {
        Ok(Answer::Upgraded { gap_us, agent, policy, failed }) => {
            #[allow(clippy::cast_precision_loss, reason = "milliseconds for people")]
            let gap_ms = gap_us as f64 / 1e3;
            let name = args.name;
            if args.json {
                let upgrade = json!({
                    "schema": 1,
                    "name": name,
                    "gap_ms": gap_ms,
                    "agent": agent,
                    "policy": policy,
                    "failed": failed,
                });
                out::json(&upgrade)?;
            } else {
                out::text(&format!(
                    "Enclave {name}: {policy} now schedules, in process {agent}. There was no agent for \
                        {gap_ms:.1} ms; {failed} commits failed meanwhile.\n"
                ))?;
            }
            Ok(Outcome::Done)
        }
        Ok(other) => anyhow::bail!("unexpected answer: {other:?}"),
        Err(error) => refused(error),
    }
}
