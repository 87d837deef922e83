//! Plans for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::file::DeploymentFile;
use super::plan::{Plan, Step};

/// What each sign means, for `--explain`.
const SIGNS: &str = "\
  + is made, ~ is changed while the service runs, - is taken away. The steps are carried out in this
  order; if one fails, those before it are undone.
";

/// Renders a plan: a line for each step, with its reason if `explain` is set.
pub fn text(plan: &Plan, wanted: &DeploymentFile, explain: bool) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for step in &plan.steps {
        let _ = writeln!(text, "{} {}: {}", step.sign(), step.section, step.what);
        if explain {
            let _ = writeln!(text, "    because {}", step.why);
        }
    }
    for (section, why) in &plan.absent {
        let _ = writeln!(text, "! {section}: {why}");
        if explain {
            let _ = writeln!(
                text,
                "    because nothing of {} was found that it applies to",
                wanted.service
            );
        }
    }
    if explain && !plan.steps.is_empty() {
        text += SIGNS;
    }
    text
}

/// Returns a plan as JSON.
pub fn json(plan: &Plan, wanted: &DeploymentFile, notes: &[String]) -> Value {
    let step = |step: &Step| {
        let Step { section, what, why, .. } = step;
        json!({ "sign": step.sign(), "section": section, "what": what, "why": why })
    };
    let absent = |(section, why): &(String, String)| json!({ "section": section, "why": why });
    json!({
        "schema": 1,
        "deployment": wanted.name,
        "file": wanted.path,
        "steps": plan.steps.iter().map(step).collect::<Vec<_>>(),
        "absent": plan.absent.iter().map(absent).collect::<Vec<_>>(),
        "warnings": notes,
    })
}
