//! `heddle agent stop`: ends an enclave.

use heddle_agent::guardian::{Answer, Enclaves, Request, ask};

use super::refused;
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle agent stop`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle agent stop lc

The program continues, and `heddle agent run` with it, to pass on its exit code.")]
pub struct Args {
    /// The enclave.
    name: String,
}

/// Asks the guardian to stop.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let folder = match Enclaves::here().folder(&args.name) {
        Ok(folder) => folder,
        Err(error) => return refused(error),
    };
    match ask(&folder, &Request::Stop) {
        Ok(Answer::Stopped { threads }) => {
            out::text(&format!(
                "Enclave {}: {threads} threads returned to the default scheduler.\n",
                args.name
            ))?;
            Ok(Outcome::Done)
        }
        Ok(other) => anyhow::bail!("unexpected answer: {other:?}"),
        Err(error) => refused(error),
    }
}
