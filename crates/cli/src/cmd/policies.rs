//! `heddle policies`: the scheduling policies that can be chosen by name, with their parameters.

use std::fmt::Write as _;

use heddle_policies::{Info, ParamInfo, list};
use serde_json::{Value, json};

use crate::exit::Outcome;
use crate::out;

/// Options of `heddle policies`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle policies
  HEDDLE_POLICY=two-queue:quantum=50us your-program")]
pub struct Args {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Prints the registry.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if args.json {
        let policies: Vec<Value> = list().iter().map(as_json).collect();
        out::json(&json!({ "schema": 1, "policies": policies }))?;
    } else {
        out::text(&text(list()))?;
    }
    Ok(Outcome::Done)
}

fn text(policies: &[Info]) -> String {
    let mut text = String::new();
    for policy in policies {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{policy}\n  e.g. {}\n", policy.example());
    }
    text
}

fn as_json(policy: &Info) -> Value {
    let param = |p: &ParamInfo| json!({ "key": p.key, "default": p.default, "example": p.example, "meaning": p.meaning });
    json!({
        "name": policy.name,
        "summary": policy.summary,
        "example": policy.example(),
        "params": policy.params.iter().map(param).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_listed_with_its_parameters() {
        let text = text(list());
        for policy in list() {
            assert!(
                text.contains(policy.name) && text.contains(&policy.example()),
                "{}",
                policy.name
            );
            assert_eq!(as_json(policy)["params"].as_array().unwrap().len(), policy.params.len());
        }
    }
}
