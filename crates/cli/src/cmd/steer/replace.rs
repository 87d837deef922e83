//! `heddle steer replace`: swaps the policy of an attachment.

use std::time::Instant;

use heddle_steer::request::Request;
use serde_json::{Value, json};

use super::attachments::AttachmentSelector;
use super::connect::open;
use super::{policy, refused};
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle steer replace`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle steer replace 1 --policy round-robin
  heddle steer replace --port 8000 --policy ./mine.c

Every input meets the old policy or the new one; none is lost in between. Maps that both declare
alike keep their values. If the new policy is refused, the old one stays.")]
pub struct Args {
    #[command(flatten)]
    which: AttachmentSelector,
    /// A shipped policy, with parameters after a colon; or FILE.c, compiled here with clang; or FILE.o.
    #[arg(long)]
    policy: String,
    /// Bypass the daemon, even if it runs (root only).
    #[arg(long)]
    direct: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Describes a partial failure: attachments replaced before `failed` cannot get their old policies back.
fn partly(failed: u32, done: &[Value]) -> String {
    let done: Vec<String> = done.iter().map(|one| one["id"].to_string()).collect();
    format!(
        "attachment {failed} keeps its policy; attachments already replaced: {}",
        done.join(", ")
    )
}

/// Replaces the policies, and prints the result.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let policy = policy::parse(&args.policy)?;
    let steering = open(args.direct)?;
    let mut replaced = Vec::new();
    for attachment in args.which.resolve(&steering)? {
        let begin = Instant::now();
        let id = attachment.id;
        let request = Request::Replace { id, policy: policy.clone() };
        if let Err(error) = steering.serve(request, Vec::new()) {
            return Err(match replaced.as_slice() {
                [] => refused(error),
                done => refused(error).context(partly(id, done)),
            });
        }
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        let before = policy::display(&attachment.policy, &attachment.parameters);
        let now = policy::display(&policy.name, &policy.parameters);
        if !args.json {
            let at = format!("{} {}", attachment.protocol, attachment.address);
            out::text(&format!(
                "Attachment {id} at {at}: {now} replaces {before} (took {ms:.0} ms).\n"
            ))?;
        }
        replaced.push(json!({ "id": id, "before": before, "now": now, "took_ms": ms }));
    }
    if args.json {
        return out::json(&json!({ "schema": 1, "replaced": replaced, "warnings": [] }))
            .map(|()| Outcome::Done);
    }
    Ok(Outcome::Done)
}
