//! `heddle replace`: another policy in the place of one that decides.

use std::time::Instant;

use heddle_steer::request::Request;
use serde_json::{Value, json};

use super::connect::open;
use super::which::Which;
use super::{living, policy, refused};
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle replace`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle replace 1 --policy round-robin
  heddle replace --port 8000 --policy ./mine.c

Every input meets the old policy or the new one, and none is lost between them. Maps that both
declare alike keep their values. If the new one is refused, the old one stays.")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// A shipped policy, with parameters after a colon; or FILE.c, compiled here with clang; or FILE.o.
    #[arg(long)]
    policy: String,
    /// Do not ask the daemon, even if it runs: for root.
    #[arg(long)]
    direct: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// What became of the attachments before one that failed: their old policies cannot be put back.
fn partly(failed: u32, done: &[Value]) -> String {
    let done: Vec<String> = done.iter().map(|one| one["id"].to_string()).collect();
    format!(
        "attachment {failed} keeps its policy; the new one decides at {} already",
        done.join(", ")
    )
}

/// Replaces, and says so.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let policy = policy::parse(&args.policy)?;
    let steering = open(args.direct)?;
    let (mut replaced, mut notes) = (Vec::new(), Vec::new());
    for attachment in args.which.all(&steering)? {
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
        let note = living::epoll_note(&policy.name, living::Living::of(&attachment).sockets());
        notes.extend(note.filter(|note| !notes.contains(note)));
        let before = policy::display(&attachment.policy, &attachment.parameters);
        let now = policy::display(&policy.name, &policy.parameters);
        if !args.json {
            let at = format!("{} {}", attachment.protocol, attachment.address);
            out::text(&format!(
                "Attachment {id} at {at}: {now} in the place of {before} (took {ms:.0} ms).\n"
            ))?;
        }
        replaced.push(json!({ "id": id, "before": before, "now": now, "took_ms": ms }));
    }
    if args.json {
        return out::json(&json!({ "schema": 1, "replaced": replaced, "warnings": notes }))
            .map(|()| Outcome::Done);
    }
    notes.iter().for_each(|note| eprintln!("Note: {note}"));
    Ok(Outcome::Done)
}
