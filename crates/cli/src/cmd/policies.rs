//! `heddle policies`: lists the policies and their parameters.

use std::fmt::Write as _;

use heddle_policies::{Info, ParamInfo, list};
use heddle_steer::policy::{Param, params, read, shipped, shipped_names, shipped_summary};
use serde_json::{Value, json};

use crate::exit::Outcome;
use crate::out;

/// Options of `heddle policies`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle policies
  heddle policies --steer
  HEDDLE_POLICY=two-queue:quantum=50us your-program")]
pub struct Args {
    /// List the policies that steer packets, datagrams and connections, instead of those that schedule tasks.
    #[arg(long)]
    steer: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Prints the registry.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if args.steer {
        let policies = shipped_names().map(steering).collect::<anyhow::Result<Vec<_>>>()?;
        match args.json {
            true => out::json(&json!({ "schema": 1, "policies": policies }))?,
            false => out::text(&policies.iter().map(steering_text).collect::<String>())?,
        }
    } else if args.json {
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
    let param = |p: &ParamInfo| {
        let ParamInfo { key, default, example, meaning, .. } = p;
        json!({ "key": key, "default": default, "example": example, "meaning": meaning })
    };
    json!({
        "name": policy.name,
        "summary": policy.summary,
        "example": policy.example(),
        "params": policy.params.iter().map(param).collect::<Vec<_>>(),
    })
}

/// Returns a steering policy as JSON.
fn steering(name: &str) -> anyhow::Result<Value> {
    let object = read(shipped(name).unwrap_or_default())?;
    let param = |p: Param| {
        let Param { name, value, least, most, meaning, .. } = p;
        json!({ "key": name, "default": value, "least": least, "most": most, "meaning": meaning })
    };
    let params: Vec<Value> = params(&object).into_iter().map(param).collect();
    Ok(json!({ "name": name, "summary": shipped_summary(name), "params": params }))
}

fn steering_text(policy: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = format!("{}\n  {}\n", text(&policy["name"]), text(&policy["summary"]));
    for param in policy["params"].as_array().into_iter().flatten() {
        let (key, meaning) = (text(&param["key"]), text(&param["meaning"]));
        let Value::Object(p) = param else { continue };
        // Writing to a string cannot fail.
        let _ = writeln!(
            lines,
            "  {key}={}  {meaning} ({} to {})",
            p["default"], p["least"], p["most"]
        );
    }
    lines + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_steering_policy_is_listed_with_its_parameters() {
        let text: String =
            shipped_names().map(|name| steering_text(&steering(name).expect(name))).collect();
        for name in shipped_names() {
            assert!(text.contains(&format!("{name}\n  ")), "{name}");
        }
        assert!(text.contains("  scan=3  the type of the long requests (0 to 255)\n"), "{text}");
    }

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
