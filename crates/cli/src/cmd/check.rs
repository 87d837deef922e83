//! `heddle check`: what is wrong with a steering policy, in plain words, before it is deployed.

use heddle_steer::hook::Hook;
use heddle_steer::policy::{CompileError, Source, VerifyError, shipped_names, verify};
use serde_json::json;

use crate::exit::{Outcome, Usage};
use crate::out;

/// Options of `heddle check`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle check my-policy.c
  sudo heddle check my-policy.c --hook socket-select
  heddle check sita:scan=2 --json

A policy is a file of C with a function `schedule` (docs/steering/policies.md), what clang made of one, or the name of one that
Heddle ships. As root, the kernel verifies it as well; nothing is attached. The exit code is 1 if it cannot be deployed.")]
pub struct Args {
    /// A file, or the name of a shipped policy; parameters behind a colon.
    #[arg(value_name = "FILE")]
    policy: String,
    /// Check it for this hook only, instead of all.
    #[arg(long, value_parser = hook)]
    hook: Option<Hook>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

fn hook(name: &str) -> Result<Hook, String> {
    let known = || Hook::ALL.map(Hook::name).join(", ");
    Hook::from_name(name).ok_or_else(|| format!("no such hook; there are: {}", known()))
}

/// Checks and tells.
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

/// A file that is not there may be a policy's name with a mistake.
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
