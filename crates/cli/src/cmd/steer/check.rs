//! `heddle steer check`: diagnoses a steering policy before it is deployed.

use heddle_steer::hook::Hook;
use heddle_steer::policy::{CompileError, Source, VerifyError, shipped_names, verify};
use serde_json::json;

use crate::exit::{Outcome, Usage};
use crate::out;

/// Options of `heddle steer check`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle steer check my-policy.c
  sudo heddle steer check my-policy.c --hook socket-select
  heddle steer check sita:scan=2 --json

A policy is a C file with a function `schedule` (docs/steering/policies.md), its compiled object,
or the name of a shipped policy. As root, the kernel verifies it as well; nothing is attached. The
exit code is 1 if the policy cannot be deployed.")]
pub struct Args {
    /// A file, or the name of a shipped policy; parameters after a colon.
    #[arg(value_name = "FILE")]
    policy: String,
    /// Check it for this hook only [default: all].
    #[arg(long, value_parser = hook)]
    hook: Option<Hook>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

fn hook(name: &str) -> Result<Hook, String> {
    let known = || Hook::ALL.map(Hook::name).join(", ");
    Hook::from_name(name).ok_or_else(|| format!("unknown hook; available: {}", known()))
}

/// Checks the policy and prints the report.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let (source, parameters) = Source::parse(&args.policy);
    let hooks = args.hook.map_or_else(|| Hook::ALL.to_vec(), |hook| vec![hook]);
    let report = verify(&source, parameters, &hooks).map_err(usage)?;
    if args.json {
        out::json(&json!({ "schema": 1, "good": report.is_good(), "report": report }))?;
    } else {
        out::text(&report.to_string())?;
    }
    match report.is_good() {
        true => Ok(Outcome::Done),
        false => anyhow::bail!("{} cannot be deployed", args.policy),
    }
}

/// A missing file may be a misspelt policy name.
fn usage(error: VerifyError) -> anyhow::Error {
    match &error {
        VerifyError::Param(wrong) => Usage(wrong.to_string()).into(),
        VerifyError::Compile(CompileError::File { .. }) => {
            let names: Vec<&str> = shipped_names().collect();
            Usage(format!("{error}; the shipped policies are: {}", names.join(", "))).into()
        }
        VerifyError::Compile(_) => error.into(),
    }
}
